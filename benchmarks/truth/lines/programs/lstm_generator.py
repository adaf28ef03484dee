"""An LSTM fed by a generator that normalizes in Python."""

import math
import random

import torch
from clock import FIXED, running
from torch import nn

series = [[math.sin(time / 10 + k) + random.random() for k in range(4)] for time in range(4000)]
tensor = torch.tensor(series)


def normalize(window):
    for k in range(4):
        values = [row[k] for row in window]
        mean = sum(values) / len(values)
        std = (sum((value - mean) ** 2 for value in values) / len(values)) ** 0.5  # planted
        for row in window:
            row[k] = (row[k] - mean) / (std + 1e-6)  # planted
    return window


def batches(size=32, length=48):
    while running():
        starts = [random.randrange(len(series) - length - 1) for _ in range(size)]
        windows = [normalize([list(row) for row in series[start : start + length]]) for start in starts]  # planted
        # As slow as normalize(): torch.tensor() visits each element of the lists.
        yield torch.tensor(windows), torch.tensor([series[start + length][0] for start in starts])  # planted


def fast_batches(size=32, length=48):
    while running():
        starts = torch.randint(0, len(series) - length - 1, (size,))
        windows = tensor[starts[:, None] + torch.arange(length)]
        windows = (windows - windows.mean(1, keepdim=True)) / (windows.std(1, keepdim=True) + 1e-6)
        yield windows, tensor[starts + length, 0]


class Forecast(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.head = nn.LSTM(4, 32, batch_first=True), nn.Linear(32, 1)

    def forward(self, x):
        return self.head(self.lstm(x)[0][:, -1]).squeeze(1)


model = Forecast()
optimizer = torch.optim.Adam(model.parameters())
for x, y in fast_batches() if FIXED else batches():
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
