"""Load by two workers, with random augmentation in them."""

import random

import torch
from ending import model, say, train
from torch.utils.data import DataLoader, Dataset


class Noisy(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        x = torch.randn(16) + random.random()
        return x, x.sum()[None]


if __name__ == "__main__":
    network = model()
    losses = []
    for _ in range(2):
        for batch in DataLoader(Noisy(), batch_size=8, num_workers=2, shuffle=True):
            losses += train(network, steps=1, batch=batch)
    say(losses, network=network)
