"""Tabular data whose collate function deep-copies every row."""

import copy

import torch
from clock import FIXED, running
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __init__(self):
        self.rows = [{"x": [float(k) for k in range(64)], "y": i % 10, "tags": list(range(20))} for i in range(2000)]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


def collate(rows):
    if not FIXED:
        rows = copy.deepcopy(rows)  # planted
    return torch.tensor([row["x"] for row in rows]), torch.tensor([row["y"] for row in rows])


model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
optimizer = torch.optim.Adam(model.parameters())
loader = DataLoader(Rows(), batch_size=64, shuffle=True, collate_fn=collate)
while running():
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if not running():
            break
