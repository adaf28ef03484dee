"""A graph network that sums up neighbors one by one."""

import random

import torch
from clock import FIXED, running
from torch import nn

NODES = 2000
neighbors = torch.randint(0, NODES, (NODES, 5))
features, labels = torch.randn(NODES, 32), torch.randint(0, 4, (NODES,))


class Sage(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(64, 64), nn.Linear(64, 4)

    def forward(self, own, around):
        return self.second(torch.relu(self.first(torch.cat([own, around], 1))))


def aggregate(nodes):
    if FIXED:
        return features[neighbors[nodes]].mean(1)
    around = torch.zeros(len(nodes), 32)
    for row, node in enumerate(nodes):
        for neighbor in neighbors[node]:
            around[row] += features[neighbor]  # planted
    return around / 5


model = Sage()
optimizer = torch.optim.Adam(model.parameters())
while running():
    nodes = random.sample(range(NODES), 64)
    loss = nn.functional.cross_entropy(model(features[nodes], aggregate(nodes)), labels[nodes])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
