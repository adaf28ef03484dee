"""Fail in a worker."""

import torch
from ending import model, say, train
from torch.utils.data import DataLoader, Dataset


class Broken(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        if index == 40:
            raise ValueError("row 40 is broken")
        return torch.full((16,), index / 64), torch.ones(1)


if __name__ == "__main__":
    network = model()
    try:
        for batch in DataLoader(Broken(), batch_size=8, num_workers=1):
            train(network, steps=1, batch=batch)
    except ValueError as error:
        say(str(error).splitlines()[-1], network=network)
        raise SystemExit(4) from None
