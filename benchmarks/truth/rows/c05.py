"""C05: epochs of 12 batches, each with workers of its own."""

import time

import torch
from torch.utils.data import DataLoader, Dataset, Subset
from training import begin, steps


class Slow(Dataset):
    def __init__(self, samples):
        self.samples = samples

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        time.sleep(0.001)
        return self.samples[index]


def main():
    args, task = begin(__doc__, steps=240)  # the clock leaves out ten: with few epochs, starts would count too much
    samples = Slow(Subset(task.samples, range(12 * task.batch)))
    loader = DataLoader(samples, batch_size=task.batch, shuffle=True, num_workers=2)
    if args.fixed:
        loader = DataLoader(samples, batch_size=task.batch, shuffle=True, num_workers=2, persistent_workers=True)
    optimizer = torch.optim.SGD(task.model.parameters(), lr=0.01)

    for _, batch in steps(loader, args, task.model):
        loss = task.loss(task.model, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
