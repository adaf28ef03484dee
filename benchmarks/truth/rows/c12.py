"""C12: batches of long vectors are collated through Python lists."""

import torch
from torch.utils.data import DataLoader
from training import begin, cores, steps


def through_lists(samples):
    return [torch.tensor([each.tolist() for each in column]) for column in zip(*samples, strict=True)]


def main():
    args, task = begin(__doc__, model="wide-64")
    workers = max(1, cores() - 1)
    loader = DataLoader(
        task.samples,
        batch_size=task.batch,
        shuffle=True,
        num_workers=workers,
        persistent_workers=True,
        collate_fn=through_lists,
    )
    if args.fixed:
        loader = DataLoader(
            task.samples, batch_size=task.batch, shuffle=True, num_workers=workers, persistent_workers=True
        )
    optimizer = torch.optim.SGD(task.model.parameters(), lr=0.01)

    for _, batch in steps(loader, args, task.model):
        loss = task.loss(task.model, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
