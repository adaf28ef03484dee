"""Nest modules so deeply that the recursion limit is nearly reached."""

from ending import say, train
from torch import nn


class Nested(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x)


network = nn.Linear(16, 1)
for _ in range(240):
    network = Nested(network)
say(train(network, steps=8), network=network)
