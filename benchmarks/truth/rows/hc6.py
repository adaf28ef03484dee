"""HC6: a short evaluation without gradients every 50 steps."""

import itertools

import torch
from torch.utils.data import DataLoader
from training import begin, steps


def evaluate(task, loader):
    """Evaluate three batches: less than 3 % of the time."""
    task.model.eval()
    with torch.no_grad():
        for batch in itertools.islice(loader, 3):
            task.loss(task.model, batch)
    task.model.train()


def main():
    args, task = begin(__doc__, steps=160)
    loader = DataLoader(task.samples, batch_size=task.batch, shuffle=True, num_workers=0)
    validation = DataLoader(task.samples, batch_size=task.batch, num_workers=0)
    optimizer = torch.optim.SGD(task.model.parameters(), lr=0.01)

    for step, batch in steps(loader, args, task.model):
        loss = task.loss(task.model, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            evaluate(task, validation)


if __name__ == "__main__":
    main()
