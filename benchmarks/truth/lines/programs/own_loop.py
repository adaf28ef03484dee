"""A custom loop that standardizes rows in Python."""

import torch
from clock import FIXED, running
from torch import nn

data, labels = torch.randn(4096, 64), torch.randint(0, 10, (4096,))
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
optimizer = torch.optim.Adam(model.parameters())


def standardize(batch):
    if FIXED:
        return (batch - batch.mean(1, keepdim=True)) / (batch.std(1, keepdim=True) + 1e-6)
    rows = []
    for row in batch:
        values = [float(value) for value in row]  # planted
        mean = sum(values) / len(values)
        std = (sum((value - mean) ** 2 for value in values) / len(values)) ** 0.5  # planted
        rows.append([(value - mean) / (std + 1e-6) for value in values])  # planted
    return torch.tensor(rows)


def train():
    while running():
        index = torch.randint(0, len(data), (64,))
        loss = nn.functional.cross_entropy(model(standardize(data[index])), labels[index])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


train()
