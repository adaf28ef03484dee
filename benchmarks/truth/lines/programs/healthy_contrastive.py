"""Contrastive learning with a loss of its own and a teacher without gradients."""

import copy

import torch
from clock import running
from torch import nn

encoder = nn.Sequential(nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 128))
teacher = copy.deepcopy(encoder)
optimizer = torch.optim.Adam(encoder.parameters(), fused=True)


def similarity_loss(a, b, temperature=0.1):
    a, b = nn.functional.normalize(a, dim=1), nn.functional.normalize(b, dim=1)
    return nn.functional.cross_entropy(a @ b.T / temperature, torch.arange(len(a)))


def targets(x):
    with torch.no_grad():
        return teacher(x)


while running():
    x = torch.randn(256, 128)
    loss = similarity_loss(encoder(x + 0.1 * torch.randn_like(x)), targets(x))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for old, new in zip(teacher.parameters(), encoder.parameters(), strict=True):
            old.lerp_(new, 0.01)
