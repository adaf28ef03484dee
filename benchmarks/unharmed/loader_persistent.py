"""Keep workers from epoch to epoch and leave one epoch early."""

import torch
from ending import model, say, train
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        return torch.full((16,), index / 64), torch.ones(1)


if __name__ == "__main__":
    network = model()
    losses = []
    loader = DataLoader(Rows(), batch_size=8, num_workers=1, persistent_workers=True, shuffle=True)
    for epoch in range(3):
        for number, batch in enumerate(loader):
            losses += train(network, steps=1, batch=batch)
            if epoch == 1 and number == 3:
                break
    say(losses, network=network)
