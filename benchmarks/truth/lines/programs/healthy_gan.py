"""A GAN with two optimizers and a loss function for each."""

import torch
from clock import running
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

generator = nn.Sequential(nn.Linear(16, 512), nn.ReLU(), nn.Linear(512, 64))
critic = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 1))
of_generator = torch.optim.Adam(generator.parameters(), fused=True)
of_critic = torch.optim.Adam(critic.parameters(), fused=True)
real_or_not = nn.BCEWithLogitsLoss()


def critic_loss(real, made):
    ones, zeros = torch.ones(len(real), 1), torch.zeros(len(made), 1)
    return real_or_not(critic(real), ones) + real_or_not(critic(made.detach()), zeros)


loader = DataLoader(TensorDataset(torch.randn(20000, 64)), batch_size=256)
while running():
    for (real,) in loader:
        made = generator(torch.randn(len(real), 16))
        of_critic.zero_grad()
        critic_loss(real, made).backward()
        of_critic.step()
        of_generator.zero_grad()
        real_or_not(critic(made), torch.ones(len(real), 1)).backward()
        of_generator.step()
        if not running():
            break
