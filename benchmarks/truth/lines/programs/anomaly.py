"""A trainer class that someone left in anomaly detection."""

import torch
from clock import FIXED, running
from torch import nn


class Trainer:
    def __init__(self, model):
        self.model, self.optimizer = model, torch.optim.Adam(model.parameters())
        if not FIXED:
            torch.autograd.set_detect_anomaly(True)  # planted

    def training_step(self, x, y):
        return nn.functional.cross_entropy(self.model(x), y)

    def fit(self):
        while running():
            loss = self.training_step(torch.randn(32, 64), torch.randint(0, 10, (32,)))
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()


layers = [layer for _ in range(12) for layer in (nn.Linear(64, 64), nn.LayerNorm(64), nn.GELU())]
Trainer(nn.Sequential(*layers, nn.Linear(64, 10))).fit()
