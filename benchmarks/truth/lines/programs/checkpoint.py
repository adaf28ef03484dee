"""A multilayer perceptron that is saved every second step."""

import torch
from clock import FIXED, running
from torch import nn

X, Y = torch.randn(3000, 64), torch.randint(0, 10, (3000,))
model = nn.Sequential(nn.Linear(64, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
optimizer = torch.optim.Adam(model.parameters())
step = 0
while running():
    index = torch.randint(0, len(X), (64,))
    loss = nn.functional.cross_entropy(model(X[index]), Y[index])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    step += 1
    if step % (200 if FIXED else 2) == 0:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, "mlp.pt")  # planted
