"""Models, data sets and losses of the rows, by names such as `mlp-768` or `gpt-128`; the number is the width."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, mse_loss, scaled_dot_product_attention
from torch.utils.data import Dataset, TensorDataset

SAMPLES = 4000


@dataclass(frozen=True)
class Task:
    model: nn.Module
    samples: Dataset
    loss: Callable[[nn.Module, Any], torch.Tensor]
    """Loss of the model on a batch."""
    batch: int = 16


def task(name):
    kind, _, width = name.partition("-")
    torch.manual_seed(0)
    return KINDS[kind](int(width))


def mlp(width, inputs=256):
    """Return a perceptron with five hidden layers."""
    sizes = [inputs] + [width] * 5
    layers = [layer for a, b in itertools.pairwise(sizes) for layer in (nn.Linear(a, b), nn.ReLU())]
    return classifier(nn.Sequential(*layers, nn.Linear(width, 10)), torch.randn(SAMPLES, inputs))


def deep(width):
    """Return a perceptron with 24 small layers: Python and autograd are a good part of a step."""
    layers = [layer for _ in range(24) for layer in (nn.Linear(width, width), nn.ReLU())]
    return classifier(nn.Sequential(*layers, nn.Linear(width, 10)), torch.randn(SAMPLES, width))


def narrow(width):
    """Return 300 blocks of two very small modules: 1,200 tensors for the optimizer."""
    blocks = [nn.Sequential(nn.Linear(width, width), nn.LayerNorm(width)) for _ in range(300)]
    inputs = torch.randn(SAMPLES, width)
    return Task(
        nn.Sequential(*blocks),
        TensorDataset(inputs, inputs.roll(1, dims=1).sin()),
        lambda model, batch: mse_loss(model(batch[0]), batch[1]),
    )


def wide(width):
    """Return one layer on long vectors: the batches are large, the model is not."""
    model = nn.Sequential(nn.Linear(4096, width), nn.ReLU(), nn.Linear(width, 10))
    return classifier(model, torch.randn(SAMPLES // 4, 4096))


def cnn(width):
    """Return a convolutional network on images of 24 x 24."""
    layers, channels = [], 3
    for _ in range(3):
        layers += [nn.Conv2d(channels, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
        channels = width
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10))
    return classifier(model, torch.randn(SAMPLES // 2, 3, 24, 24))


class LSTM(nn.Module):
    """A classifier of sequences."""

    def __init__(self, width):
        super().__init__()
        self.lstm, self.head = nn.LSTM(32, width, num_layers=2, batch_first=True), nn.Linear(width, 10)

    def forward(self, x):
        return self.head(self.lstm(x)[0][:, -1])


def lstm(width):
    """Return an LSTM on sequences of 32."""
    return classifier(LSTM(width), torch.randn(SAMPLES, 32, 32))


class Block(nn.Module):
    """A block of a GPT."""

    def __init__(self, width):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        rows, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(rows, length, 3, 4, -1).permute(2, 0, 3, 1, 4)
        mixed = scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(rows, length, width))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    """Two blocks over 64 tokens."""

    def __init__(self, width):
        super().__init__()
        self.token, self.position = nn.Embedding(256, width), nn.Embedding(64, width)
        self.blocks = nn.Sequential(Block(width), Block(width))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 256)

    def forward(self, tokens):
        return self.head(self.norm(self.blocks(self.token(tokens) + self.position.weight)))


def gpt(width):
    """Return a GPT that predicts the next token after each of 64."""
    tokens = torch.arange(65) * torch.randint(1, 8, (SAMPLES, 1)) % 256
    return Task(
        GPT(width),
        TensorDataset(tokens),
        lambda model, batch: cross_entropy(model(batch[0][:, :-1]).flatten(0, 1), batch[0][:, 1:].flatten()),
        batch=8,
    )


class VAE(nn.Module):
    """An autoencoder that returns a reconstruction's logits, and mean and log variance of the code."""

    def __init__(self, width):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(784, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.code = nn.Linear(width, 2 * 32)
        self.decoder = nn.Sequential(nn.Linear(32, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.out = nn.Linear(width, 784)

    def forward(self, x):
        mean, log_variance = self.code(self.encoder(x)).chunk(2, dim=1)
        drawn = mean + torch.randn_like(mean) * (log_variance / 2).exp()
        return self.out(self.decoder(drawn)), mean, log_variance


def vae(width):
    """Return a VAE on images of 784 numbers."""

    def loss(model, batch):
        logits, mean, log_variance = model(batch[0])
        divergence = (mean.square() + log_variance.exp() - 1 - log_variance).sum(1).mean() / 2
        return binary_cross_entropy_with_logits(logits, batch[0]) + divergence / 784

    return Task(VAE(width), TensorDataset(torch.rand(SAMPLES, 784)), loss, batch=64)


def classifier(model, inputs):
    labels = torch.randint(10, (len(inputs),))
    return Task(model, TensorDataset(inputs, labels), lambda model, batch: cross_entropy(model(batch[0]), batch[1]))


KINDS = {each.__name__: each for each in (mlp, deep, narrow, wide, cnn, lstm, gpt, vae)}
