"""Training shared by the programs, which prints everything that would reveal a change in a program."""

import hashlib

import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)


def model(width=16):
    """Make the same small model each time."""
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(width, 32), nn.Tanh(), nn.Linear(32, 1))


def data(rows=16, width=16):
    """Make inputs and targets."""
    x = torch.randn(rows, width)
    return x, x.sum(1, keepdim=True)


def train(network, optimizer=None, steps=20, batch=None):
    """Run some steps; return the losses."""
    optimizer = optimizer or torch.optim.SGD(network.parameters(), lr=0.01)
    losses = []
    for _ in range(steps):
        x, y = batch or data()
        loss = nn.functional.mse_loss(network(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def say(*values, network=None):
    """Print values exactly, a digest of the weights, and one of torch's random state."""
    for value in values:
        floats = isinstance(value, list) and all(isinstance(number, float) for number in value)
        print([number.hex() for number in value] if floats else value, flush=True)
    if network is not None:
        digest = hashlib.sha256()
        for name, tensor in network.state_dict().items():
            digest.update(name.encode() + bytes(tensor.detach().reshape(-1).view(torch.uint8).tolist()))
        print("weights", digest.hexdigest()[:16], flush=True)
    print("random", hashlib.sha256(bytes(torch.get_rng_state().tolist())).hexdigest()[:16], flush=True)
