"""Penalize the gradient, which takes a gradient of a gradient."""

import torch
from ending import data, model, say
from torch import nn

network = model()
optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
losses = []
for _ in range(15):
    x, y = data()
    x.requires_grad_()
    out = network(x)
    (slope,) = torch.autograd.grad(out.sum(), x, create_graph=True)
    loss = nn.functional.mse_loss(out, y) + slope.norm(dim=1).sub(1).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
say(losses, network=network)
