"""Trace a model while it trains and train the trace."""

import torch
from ending import data, model, say, train

network = model()
losses = train(network)
traced = torch.jit.trace(network, data()[0])
say(losses, train(traced), str(traced.graph).count("aten::"), network=network)
