"""Look at modules, hooks and attributes that a tool might leave."""

import inspect
import sys

import torch
from ending import model, say, train

network = model()
losses = train(network)
methods = [name for name, _ in inspect.getmembers(network, inspect.ismethod)]
say(losses, sorted(network.__dict__), methods, network._compiled_call_impl, network=network)
say(len(network._forward_hooks), len(network._backward_hooks), sorted(vars(torch.optim.SGD))[:40])
say(sys.gettrace() is None, sys.getprofile() is None, sys.getrecursionlimit(), sys.argv)
