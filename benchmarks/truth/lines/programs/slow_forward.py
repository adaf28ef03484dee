"""A forward pass that computes element by element."""

import torch
from clock import FIXED, running
from torch import nn


class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.head = nn.Linear(32, 32), nn.Linear(32, 10)

    def forward(self, x):
        query = self.query(x)
        if FIXED:
            return self.head(torch.tanh(query).mul(0.5).mean(1))
        rows = []
        for i in range(query.shape[0]):
            for j in range(query.shape[1]):
                rows.append(torch.tanh(query[i, j]) * 0.5)  # planted
        return self.head(torch.stack(rows).view_as(query).mean(1))


model = Gate()
optimizer = torch.optim.Adam(model.parameters())
while running():
    x, y = torch.randn(32, 16, 32), torch.randint(0, 10, (32,))
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
