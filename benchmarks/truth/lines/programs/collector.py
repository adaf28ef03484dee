"""A context manager that runs the garbage collector after each step, in a program with many objects."""

import contextlib
import gc

import torch
from clock import FIXED, running
from torch import nn

vocabulary = [{"id": i, "word": str(i), "pieces": [str(i)[:2], str(i)[2:]]} for i in range(30000)]


@contextlib.contextmanager
def clean_memory():
    try:
        yield
    finally:
        if not FIXED:
            gc.collect()  # planted


model = nn.Sequential(nn.Embedding(30000, 16), nn.Flatten(), nn.Linear(16 * 24, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
while running():
    with clean_memory():
        ids = torch.randint(0, 30000, (16, 24))
        loss = nn.functional.cross_entropy(model(ids), ids[:, 0] % 2)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
