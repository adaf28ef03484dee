"""Stream from an iterable dataset that has no length."""

import torch
from ending import model, say, train
from torch.utils.data import DataLoader, IterableDataset


class Stream(IterableDataset):
    def __iter__(self):
        for number in range(100):
            yield torch.full((16,), number / 100), torch.ones(1)


network = model()
losses = []
for batch in DataLoader(Stream(), batch_size=8):
    losses += train(network, steps=1, batch=batch)
say(losses, network=network)
