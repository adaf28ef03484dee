"""Allocate up to a limit of address space."""

import resource

import torch
from ending import model, say, train

network = model()
losses = train(network)
with open("/proc/self/statm") as file:
    held = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (held + (1 << 30), resource.RLIM_INFINITY))
try:
    torch.empty(1 << 40, dtype=torch.uint8)
    print("it fits")
except RuntimeError:
    print("it does not fit")
say(losses, train(network), network=network)
