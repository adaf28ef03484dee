"""C02: a sample takes 5 ms to fetch, and there is one worker to do it."""

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
        time.sleep(0.005)
        return self.samples[index]


def main():
    args, task = begin(__doc__)
    samples = Slow(task.samples)
    loader = DataLoader(samples, batch_size=task.batch, shuffle=True, num_workers=1, persistent_workers=True)
    if args.fixed:
        loader = DataLoader(
            samples, batch_size=task.batch, shuffle=True, num_workers=args.workers or 5, persistent_workers=True
        )
    optimizer = torch.optim.SGD(task.model.parameters(), lr=0.01)

    for _, batch in steps(loader, args, task.model):
        loss = task.loss(task.model, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
