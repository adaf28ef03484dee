"""Windows of a time series cut by a generator, value by value."""

import math
import random

import torch
from clock import FIXED, running
from torch import nn

series = [math.sin(time / 20) + random.gauss(0, 0.1) for time in range(20000)]
whole = torch.tensor(series)
model = nn.Sequential(nn.Linear(96, 128), nn.ReLU(), nn.Linear(128, 1))
optimizer = torch.optim.Adam(model.parameters())


def windows(size=64, length=96):
    while running():
        xs, ys = [], []
        for _ in range(size):
            start = random.randrange(len(series) - length)
            xs.append([series[start + k] - series[start] for k in range(length)])  # planted
            ys.append(series[start + length])
        yield torch.tensor(xs), torch.tensor(ys)  # planted


def sliced(size=64, length=96):
    while running():
        start = torch.randint(0, len(series) - length, (size, 1))
        x = whole[start + torch.arange(length)]
        yield x - x[:, :1], whole[start[:, 0] + length]


for x, y in sliced() if FIXED else windows():
    loss = nn.functional.mse_loss(model(x).squeeze(1), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
