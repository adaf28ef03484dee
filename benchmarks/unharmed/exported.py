"""Export a model after its first steps."""

import torch
from ending import data, model, say, train

network = model()
losses = train(network)
program = torch.export.export(network, (data()[0],))
say(losses, [program.module()(torch.ones(16, 16)).sum().item()], len(program.graph.nodes), network=network)
