"""Compile a model and a gradient as one graph each."""

import torch
from ending import model, say, train

network = torch.compile(model(), backend="aot_eager", fullgraph=True)
losses = train(network)
square = torch.compile(lambda x: x**2, backend="eager", fullgraph=True)
say(losses, [square(torch.ones(3)).sum().item()])
