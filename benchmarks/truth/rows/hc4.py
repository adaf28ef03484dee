"""HC4: the first eight steps take 100 ms longer."""

import time

import torch
from torch.utils.data import DataLoader
from training import begin, steps


def main():
    args, task = begin(__doc__)
    loader = DataLoader(task.samples, batch_size=task.batch, shuffle=True, num_workers=0)
    optimizer = torch.optim.SGD(task.model.parameters(), lr=0.01)

    for step, batch in steps(loader, args, task.model):
        loss = task.loss(task.model, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step <= 8:
            time.sleep(0.1)


if __name__ == "__main__":
    main()
