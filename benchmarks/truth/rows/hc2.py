"""HC2: a sample takes 0.2 ms, and two workers keep up."""

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
        time.sleep(0.0002)
        return self.samples[index]


def main():
    args, task = begin(__doc__)
    loader = DataLoader(Slow(task.samples), batch_size=task.batch, shuffle=True, num_workers=2, persistent_workers=True)
    optimizer = torch.optim.SGD(task.model.parameters(), lr=0.01)

    for _, batch in steps(loader, args, task.model):
        loss = task.loss(task.model, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
