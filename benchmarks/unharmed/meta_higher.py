"""Train through an inner loop of the `higher` package."""

import higher
import torch
from ending import data, model, say
from torch import nn

network = model()
outer, inner = torch.optim.Adam(network.parameters(), lr=0.01), torch.optim.SGD(network.parameters(), lr=0.05)
losses = []
for _ in range(8):
    outer.zero_grad()
    with higher.innerloop_ctx(network, inner, copy_initial_weights=False) as (functional, steps):
        for _ in range(2):
            x, y = data()
            steps.step(nn.functional.mse_loss(functional(x), y))
        x, y = data()
        loss = nn.functional.mse_loss(functional(x), y)
        loss.backward()
    outer.step()
    losses.append(loss.item())
say(losses, network=network)
