"""A callback that sleeps, as a progress display once needed."""

import time

import torch
from clock import FIXED, running
from torch import nn


class Callback:
    def on_step_end(self, step):
        pass


class Display(Callback):
    def on_step_end(self, step):
        if not FIXED:
            time.sleep(0.02)  # planted


X, Y = torch.randn(3000, 64), torch.randint(0, 10, (3000,))
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
optimizer = torch.optim.Adam(model.parameters())
callbacks, step = [Callback(), Display()], 0
while running():
    index = torch.randint(0, len(X), (256,))
    loss = nn.functional.cross_entropy(model(X[index]), Y[index])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    step += 1
    for callback in callbacks:
        callback.on_step_end(step)
