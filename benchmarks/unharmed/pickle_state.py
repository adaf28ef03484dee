"""Pickle a model whose __getstate__ leaves things out."""

import pickle

import torch
from ending import say, train
from torch import nn


class Stateful(nn.Module):
    def __init__(self):
        super().__init__()
        self.line = nn.Linear(16, 1)
        self.cache = {}

    def __getstate__(self):
        return {**self.__dict__, "cache": None}

    def __setstate__(self, state):
        self.__dict__.update(state)
        self.cache = {}

    def forward(self, x):
        self.cache["last"] = x.shape
        return self.line(x)


torch.manual_seed(2)
network = Stateful()
losses = train(network)
loaded = pickle.loads(pickle.dumps(network))
say(losses, train(loaded), sorted(loaded.__dict__), network=loaded)
