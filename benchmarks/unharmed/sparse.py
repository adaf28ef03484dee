"""Train an embedding with sparse gradients."""

import torch
from ending import say
from torch import nn

torch.manual_seed(5)
network = nn.Embedding(100, 8, sparse=True)
optimizer = torch.optim.SparseAdam(list(network.parameters()), lr=0.01)
losses = []
for _ in range(20):
    loss = network(torch.randint(100, (16,))).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
say(losses, network=network)
