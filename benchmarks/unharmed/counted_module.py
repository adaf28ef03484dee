"""Count the calls to a model that overrides nearly everything."""

from collections import Counter

import torch
from ending import say, train
from torch import nn

seen = Counter()


class Counted(nn.Module):
    def __init__(self):
        super().__init__()
        self.line = nn.Linear(16, 1)

    def parameters(self, recurse=True):
        seen["parameters"] += 1
        return super().parameters(recurse)

    def modules(self):
        seen["modules"] += 1
        return super().modules()

    def named_parameters(self, *args, **kwargs):
        seen["named_parameters"] += 1
        return super().named_parameters(*args, **kwargs)

    def __len__(self):
        seen["len"] += 1
        return 0

    def __hash__(self):
        seen["hash"] += 1
        return 1

    def __eq__(self, other):
        seen["eq"] += 1
        return self is other

    def __getattr__(self, name):
        seen[name] += 1
        return super().__getattr__(name)

    def forward(self, x):
        return self.line(x)


torch.manual_seed(6)
network = Counted()
losses = train(network)
say(losses, sorted(seen.items()), network=network)
