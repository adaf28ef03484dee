"""Train layers with weight norm and a parametrization."""

from ending import say, train
from torch import nn
from torch.nn.utils import parametrize


class Symmetric(nn.Module):
    def forward(self, x):
        return x.triu() + x.triu(1).T


network = nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1))
parametrize.register_parametrization(network[0], "weight", Symmetric())
nn.utils.parametrizations.weight_norm(network[2])
losses = train(network)
parametrize.remove_parametrizations(network[0], "weight")
say(losses, train(network), network=network)
