"""A loss curve drawn after each step."""

import matplotlib
import torch
from clock import FIXED, running
from torch import nn

matplotlib.use("Agg")
import matplotlib.pyplot as plt

X, Y = torch.randn(3000, 64), torch.randint(0, 10, (3000,))
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
optimizer = torch.optim.Adam(model.parameters())
losses, step = [], 0
while running():
    index = torch.randint(0, len(X), (256,))
    loss = nn.functional.cross_entropy(model(X[index]), Y[index])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    step += 1
    if step % (100 if FIXED else 1) == 0:
        plt.clf()  # planted
        plt.plot(losses)  # planted
        plt.savefig("loss.png")  # planted
