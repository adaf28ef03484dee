"""C03: a sample takes 2.5 ms of a core, and the training process makes them itself."""

import time

import torch
from torch.utils.data import DataLoader, Dataset
from training import begin, cores, steps


class Slow(Dataset):
    def __init__(self, samples):
        self.samples = samples

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        end = time.thread_time() + 0.0025
        while time.thread_time() < end:
            pass
        return self.samples[index]


def main():
    args, task = begin(__doc__)
    samples = Slow(task.samples)
    loader = DataLoader(samples, batch_size=task.batch, shuffle=True, num_workers=0)
    if args.fixed:
        workers = args.workers or cores() - 1
        loader = DataLoader(samples, batch_size=task.batch, shuffle=True, num_workers=workers, persistent_workers=True)
    optimizer = torch.optim.SGD(task.model.parameters(), lr=0.01)

    for _, batch in steps(loader, args, task.model):
        loss = task.loss(task.model, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
