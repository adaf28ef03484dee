"""Q-learning whose replay buffer is copied for every batch."""

import copy
import random
from collections import deque

import torch
from clock import FIXED, running
from torch import nn

q = nn.Sequential(nn.Linear(16, 128), nn.ReLU(), nn.Linear(128, 4))
target = nn.Sequential(nn.Linear(16, 128), nn.ReLU(), nn.Linear(128, 4))
optimizer = torch.optim.Adam(q.parameters())
buffer = deque(maxlen=2000)
for _ in range(2000):
    buffer.append({"s": [random.random() for _ in range(16)], "a": random.randrange(4), "r": random.random()})


def sample(size):
    kept = list(buffer) if FIXED else copy.deepcopy(list(buffer)[:500])  # planted
    rows = random.sample(kept, size)
    states = torch.tensor([row["s"] for row in rows])
    return states, torch.tensor([row["a"] for row in rows]), torch.tensor([row["r"] for row in rows])


def update():
    states, actions, rewards = sample(64)
    with torch.no_grad():
        wanted = rewards + 0.99 * target(states).max(1).values
    value = q(states).gather(1, actions[:, None]).squeeze(1)
    loss = nn.functional.smooth_l1_loss(value, wanted)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


while running():
    buffer.append({"s": [random.random() for _ in range(16)], "a": random.randrange(4), "r": random.random()})
    update()
