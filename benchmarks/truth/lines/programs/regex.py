"""Log lines parsed by regular expressions in the loop."""

import random
import re

import torch
from clock import FIXED, running
from torch import nn

lines = [f"user={i} score={random.random():.4f} tags={'a,b,' * 30}" for i in range(2000)]
model = nn.Sequential(nn.Linear(3, 128), nn.ReLU(), nn.Linear(128, 10))
optimizer = torch.optim.Adam(model.parameters())


def parse(line):
    user = re.search(r"user=(\d+)", line)  # planted
    tags = re.findall(r"(?:[a-z],)+?", line)  # planted
    score = re.search(r"(?:.*\s)?score=([0-9.]+)", line)  # planted
    return [float(user[1]) / 2000, float(score[1]), len(tags) / 60]


parsed = torch.tensor([parse(line) for line in lines]) if FIXED else None
while running():
    chosen = random.sample(range(len(lines)), 128)
    x = parsed[chosen] if FIXED else torch.tensor([parse(lines[i]) for i in chosen])
    loss = nn.functional.cross_entropy(model(x), torch.randint(0, 10, (128,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
