"""C06: of 640 samples one takes 200 ms, the others 0.4; the queue is too short for it."""

import time

import torch
from torch.utils.data import DataLoader, Dataset
from training import begin, steps


class Slow(Dataset):
    def __init__(self, samples):
        self.samples = samples

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        time.sleep(0.2 if index % 640 == 639 else 0.0004)
        return self.samples[index]


def main():
    args, task = begin(__doc__, steps=200)
    samples = Slow(task.samples)
    loader = DataLoader(samples, batch_size=task.batch, num_workers=2, persistent_workers=True, prefetch_factor=2)
    if args.fixed:
        loader = DataLoader(
            samples, batch_size=task.batch, num_workers=2, persistent_workers=True, prefetch_factor=args.prefetch or 8
        )
    optimizer = torch.optim.SGD(task.model.parameters(), lr=0.01)

    for _, batch in steps(loader, args, task.model):
        loss = task.loss(task.model, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
