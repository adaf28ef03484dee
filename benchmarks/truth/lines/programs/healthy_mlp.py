"""A multilayer perceptron over a DataLoader."""

import torch
from clock import running
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

model = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 10))
optimizer = torch.optim.Adam(model.parameters(), fused=True)
data = TensorDataset(torch.randn(20000, 256), torch.randint(0, 10, (20000,)))
loader = DataLoader(data, batch_size=256, shuffle=True)
while running():
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if not running():
            break
