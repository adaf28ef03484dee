"""Change a model's class after its first steps."""

from ending import model, say, train
from torch import nn


class Doubled(nn.Sequential):
    def forward(self, x):
        return 2 * super().forward(x)


network = model()
losses = train(network)
network.__class__ = Doubled
say(losses, train(network), type(network).__name__, network=network)
