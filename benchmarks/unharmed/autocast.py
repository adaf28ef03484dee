"""Train in bfloat16 under autocast."""

import torch
from ending import data, model, say
from torch import nn

network = model()
optimizer = torch.optim.AdamW(network.parameters(), lr=0.01)
losses = []
for _ in range(20):
    x, y = data()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = nn.functional.mse_loss(network(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
say(losses, network=network)
