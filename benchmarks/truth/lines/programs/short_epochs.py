"""Epochs of ten steps, each with a validation in small batches."""

import torch
from clock import FIXED, running
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

full = TensorDataset(torch.randn(3000, 64), torch.randint(0, 5, (3000,)))
train, val = torch.utils.data.random_split(full, [1000, 2000])
model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 5))
opt = torch.optim.Adam(model.parameters())


def validate():
    model.eval()
    right = 0
    for x, y in DataLoader(val, batch_size=20):  # planted
        with torch.no_grad():
            right += (model(x).argmax(1) == y).sum().item()  # planted
    model.train()
    return right / len(val)


epoch = 0
go = True
loader = DataLoader(train, batch_size=100, shuffle=True)
while go:
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        go = running()
        if not go:
            break
    epoch += 1
    if not FIXED or epoch % 4 == 0:
        accuracy = validate()  # planted
