"""C07: every step writes a histogram of every parameter, and waits for the disk."""

import json
import os
import tempfile

import torch
from torch.utils.data import DataLoader
from training import begin, steps


def log(file, step, loss, model):
    bins = [torch.histc(each.detach(), 64).tolist() for each in model.parameters()]
    file.write(json.dumps({"step": step, "loss": loss.item(), "bins": bins}) + "\n")
    file.flush()
    os.fsync(file.fileno())


def main():
    args, task = begin(__doc__)
    every = 1
    if args.fixed:
        every = args.every or 25
    loader = DataLoader(task.samples, batch_size=task.batch, shuffle=True, num_workers=0)
    optimizer = torch.optim.SGD(task.model.parameters(), lr=0.01)

    with tempfile.TemporaryFile("w") as file:
        for step, batch in steps(loader, args, task.model):
            loss = task.loss(task.model, batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % every == 0:
                log(file, step, loss, task.model)


if __name__ == "__main__":
    main()
