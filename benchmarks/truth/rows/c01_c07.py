"""C01 and C07: samples that take 5 ms each, and a line with histograms every step. The cure is the one of C01."""

import json
import os
import tempfile
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


def log(file, step, loss, model):
    bins = [torch.histc(each.detach(), 64).tolist() for each in model.parameters()]
    file.write(json.dumps({"step": step, "loss": loss.item(), "bins": bins}) + "\n")
    file.flush()
    os.fsync(file.fileno())


def main():
    args, task = begin(__doc__)
    samples = Slow(task.samples)
    loader = DataLoader(samples, batch_size=task.batch, shuffle=True, num_workers=0)
    if args.fixed:
        loader = DataLoader(
            samples, batch_size=task.batch, shuffle=True, num_workers=args.workers or 5, persistent_workers=True
        )
    optimizer = torch.optim.SGD(task.model.parameters(), lr=0.01)

    with tempfile.TemporaryFile("w") as file:
        for step, batch in steps(loader, args, task.model):
            loss = task.loss(task.model, batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            log(file, step, loss, task.model)


if __name__ == "__main__":
    main()
