"""Train a generator and a discriminator in turns."""

import torch
from ending import model, say
from torch import nn

torch.manual_seed(4)
generator, judge = nn.Linear(8, 16), model()
of_generator = torch.optim.Adam(generator.parameters(), lr=0.01)
of_judge = torch.optim.Adam(judge.parameters(), lr=0.01)
losses = []
for _ in range(20):
    real, made = torch.randn(16, 16), generator(torch.randn(16, 8))
    loss = nn.functional.softplus(-judge(real)).mean() + nn.functional.softplus(judge(made.detach())).mean()
    of_judge.zero_grad()
    loss.backward()
    of_judge.step()
    fooled = nn.functional.softplus(-judge(made)).mean()
    of_generator.zero_grad()
    fooled.backward()
    of_generator.step()
    losses += [loss.item(), fooled.item()]
say(losses, network=judge)
