"""C04: a sample takes 0.5 ms of a core, and 16 workers share few cores."""

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
        end = time.thread_time() + 0.0005
        while time.thread_time() < end:
            pass
        return self.samples[index]


def main():
    args, task = begin(__doc__, steps=240)  # enough steps to sample the use of the cores, ten times a second
    samples = Slow(task.samples)
    loader = DataLoader(samples, batch_size=task.batch, shuffle=True, num_workers=16, persistent_workers=True)
    if args.fixed:
        loader = DataLoader(
            samples, batch_size=task.batch, shuffle=True, num_workers=args.workers or 1, persistent_workers=True
        )
    optimizer = torch.optim.SGD(task.model.parameters(), lr=0.01)

    for _, batch in steps(loader, args, task.model):
        loss = task.loss(task.model, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
