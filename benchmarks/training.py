"""Build the loops that loops.py describes: model, batches and one step."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

BATCHES = 400
"""Batches per epoch."""


@dataclass(frozen=True)
class Training:
    model: nn.Module
    batches: Callable[[], Iterator[Any]]
    """Makes an endless iterator."""
    train: Callable[[Any], None]
    """One step on a batch."""


def build(loop):
    """Return the training that a Loop describes, on one thread."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    return {"mlp": mlp, "modules": modules, "tensor": tensor}[loop.model](loop)


class Samples(Dataset):
    def __init__(self, loop):
        self.inputs = torch.randn(loop.batch * BATCHES, loop.inputs)
        self.labels = torch.randint(10, (loop.batch * BATCHES,))
        self.work = loop.sample_work

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        x = self.inputs[index]
        for _ in range(self.work):
            x = x * 1.0
        return x, self.labels[index]


def loader(loop):
    return DataLoader(
        Samples(loop), loop.batch, shuffle=True, num_workers=loop.workers, persistent_workers=loop.workers > 0
    )


def network(loop):
    sizes = [loop.inputs] + [loop.width] * loop.layers
    layers = [layer for a, b in itertools.pairwise(sizes) for layer in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(loop.width, 10))


def mlp(loop):
    """Train fully connected layers on batches of a DataLoader."""
    model, source = network(loop), loader(loop)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def batches():
        while True:
            yield from source

    def train(batch):
        x, y = batch
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return Training(model, batches, train)


class Block(nn.Module):
    """Four modules, itself included."""

    def __init__(self):
        super().__init__()
        self.linear, self.activation, self.rest = nn.Linear(16, 16), nn.ReLU(), nn.Identity()

    def forward(self, x):
        return x + self.rest(self.activation(self.linear(x)))


def modules(loop):
    """Train a model of a thousand small modules on one batch."""
    model = nn.Sequential(*(Block() for _ in range(250)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x = torch.randn(loop.batch, 16)

    def train(_):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    return Training(model, lambda: itertools.repeat(None), train)


def tensor(loop):
    """Train one small tensor, without a module or a DataLoader: the shortest possible step."""
    weight, x = nn.Parameter(torch.zeros(64)), torch.randn(64)
    momentum = torch.zeros(64)
    optimizer = torch.optim.SGD([weight], lr=0.01, momentum=0.9) if loop.optimizer else None

    def loss():
        return (weight * x).square().mean()

    def train(_):
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()

    def by_hand(_):
        loss().backward()
        with torch.no_grad():
            momentum.mul_(0.9).add_(weight.grad)
            weight.mul_(0.999).add_(momentum, alpha=-0.01)
        weight.grad = None

    return Training(nn.ParameterList([weight]), lambda: itertools.repeat(None), train if loop.optimizer else by_hand)
