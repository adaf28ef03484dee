"""A validation after every few steps, each with a DataLoader and workers of its own."""

import torch
from clock import FIXED, running
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

train = TensorDataset(torch.randn(4000, 64), torch.randint(0, 10, (4000,)))
held_out = TensorDataset(torch.randn(256, 64), torch.randint(0, 10, (256,)))
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
optimizer = torch.optim.Adam(model.parameters())
kept = DataLoader(held_out, batch_size=128)


def validate():
    loader = kept if FIXED else DataLoader(held_out, batch_size=128, num_workers=2)
    model.eval()
    with torch.no_grad():
        losses = [nn.functional.cross_entropy(model(x), y).item() for x, y in loader]  # planted
    model.train()
    return sum(losses) / len(losses)


if __name__ == "__main__":
    step = 0
    while running():
        for x, y in DataLoader(train, batch_size=64, shuffle=True):
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % 5 == 0:
                validate()  # planted
            if not running():
                break
