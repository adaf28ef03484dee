"""Copy a model that defines __copy__ and __deepcopy__ itself."""

import copy

import torch
from ending import data, say, train
from torch import nn


class Own(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.width = width
        self.inner = nn.Linear(16, width)
        self.outer = nn.Linear(width, 1)

    def __copy__(self):
        twin = Own(self.width)
        twin.__dict__.update(self.__dict__)
        return twin

    def __deepcopy__(self, memo):
        twin = Own(self.width)
        twin.load_state_dict(self.state_dict())
        return twin

    def forward(self, x):
        return self.outer(torch.tanh(self.inner(x)))


torch.manual_seed(3)
network = Own()
losses = train(network)
shallow, deep = copy.copy(network), copy.deepcopy(network)
losses += train(network)
x, _ = data()
say(losses, [shallow(x).sum().item(), deep(x).sum().item()], network=deep)
