"""Count each call to a sampler, a dataset, and a batch, and draw random numbers in them."""

from collections import Counter

import torch
from ending import model, say, train
from torch.utils.data import DataLoader, Dataset, Sampler

seen = Counter()


class Drawn(Sampler):
    def __len__(self):
        seen["len"] += 1
        return int(torch.randint(60, 64, ()))

    def __iter__(self):
        seen["iter"] += 1
        return iter(range(64))


class Lazy(dict):
    def items(self):
        seen["items"] += 1
        return super().items()

    def __getitem__(self, key):
        seen["getitem"] += 1
        return super().__getitem__(key)

    def __iter__(self):
        seen["iter of a batch"] += 1
        return super().__iter__()

    def __len__(self):
        seen["len of a batch"] += 1
        return super().__len__()


class Rows(Dataset):
    def __len__(self):
        seen["len of rows"] += 1
        return 64

    def __getitem__(self, index):
        return torch.full((16,), index / 64)


network = model()
losses = []
loader = DataLoader(Rows(), batch_size=8, sampler=Drawn(), collate_fn=lambda rows: Lazy(x=torch.stack(rows)))
for batch in loader:
    x = batch["x"]
    losses += train(network, steps=1, batch=(x, x.sum(1, keepdim=True)))
say(losses, sorted(seen.items()), network=network)
