"""Look at modules, hooks and attributes that a tool might leave."""

import sys

import torch
from ending import model, say, train

network = model()
losses = train(network)
say(losses, sorted(network.__dict__), [name for name in vars(type(network)) if "call" in name], network=network)
say(len(network._forward_hooks), len(network._backward_hooks), sorted(vars(torch.optim.SGD))[:40])
say(sys.gettrace() is None, sys.getprofile() is None, sys.getrecursionlimit(), sys.argv)
