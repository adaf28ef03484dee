"""Recompute activations in the backward pass."""

import torch
from ending import data, model, say
from torch import nn
from torch.utils.checkpoint import checkpoint

network = model()
optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
losses = []
for reentrant in (True, False):
    for _ in range(10):
        x, y = data()
        out = checkpoint(network, x.requires_grad_(), use_reentrant=reentrant)
        loss = nn.functional.mse_loss(out, y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
say(losses, network=network)
