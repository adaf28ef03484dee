"""A curriculum whose sampler weighs all samples again for each batch."""

import math
import random

import torch
from clock import FIXED, running
from torch import nn
from torch.utils.data import DataLoader, Sampler, TensorDataset


class Curriculum(Sampler):
    def __init__(self, difficulty, batch_size):
        self.difficulty, self.batch_size, self.seen = difficulty, batch_size, 0

    def weights(self):
        temperature = 0.1 + self.seen / 1e6
        return [math.exp(-difficulty / temperature) for difficulty in self.difficulty]  # planted

    def __iter__(self):
        for step in range(len(self)):
            if step % (100 if FIXED else 1) == 0:
                total = [0.0]
                for weight in self.weights():  # planted
                    total.append(total[-1] + weight)  # planted
            self.seen += self.batch_size
            yield random.choices(range(len(self.difficulty)), cum_weights=total[1:], k=self.batch_size)  # planted

    def __len__(self):
        return len(self.difficulty) // self.batch_size


x = torch.randn(12000, 48)
data = TensorDataset(x, (x.sum(1) > 0).long())
loader = DataLoader(data, batch_sampler=Curriculum(x.norm(dim=1).tolist(), 64))
model = nn.Sequential(nn.Linear(48, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 2))
optimizer = torch.optim.AdamW(model.parameters())
while running():
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if not running():
            break
