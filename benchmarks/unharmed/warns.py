"""Warn in a forward pass, a hook and a data set, at the levels of their callers."""

import warnings

import torch
from ending import model, say, train
from torch import nn

warnings.simplefilter("always")


class Rows(torch.utils.data.Dataset):
    """Warns at each row."""

    def __len__(self):
        return 4

    def __getitem__(self, index):
        warnings.warn("row", stacklevel=5)
        return torch.ones(16)


class Warns(nn.Module):
    """Warns as it is called."""

    def __init__(self):
        super().__init__()
        self.inner = model()

    def forward(self, x):
        warnings.warn("forward", stacklevel=4)
        return self.inner(x)


network = Warns()
network.inner[0].register_full_backward_hook(lambda *_: warnings.warn("backward", stacklevel=5))
losses = train(network, steps=8)
for batch in torch.utils.data.DataLoader(Rows(), batch_size=2):
    losses.append(network(batch).sum().item())
say(losses, network=network)
