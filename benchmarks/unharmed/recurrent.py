"""Train a packed LSTM with a learning-rate schedule."""

import torch
from ending import say
from torch import nn

torch.manual_seed(5)
network = nn.LSTM(8, 16, batch_first=True)
optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20)
losses = []
for _ in range(20):
    x = nn.utils.rnn.pack_padded_sequence(torch.randn(4, 6, 8), torch.tensor([6, 5, 3, 2]), batch_first=True)
    loss = network(x)[1][0].square().mean()
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(network.parameters(), 0.1)
    optimizer.step()
    schedule.step()
    losses += [loss.item(), schedule.get_last_lr()[0]]
say(losses, network=network)
