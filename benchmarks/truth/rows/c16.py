"""C16: the launcher left one thread for matmuls that two threads make faster."""

import torch
from torch.utils.data import DataLoader
from training import begin, cores, steps


def main():
    args, task = begin(__doc__, model="mlp-2048", threads=None)
    if args.fixed:
        torch.set_num_threads(args.threads or cores())
    loader = DataLoader(task.samples, batch_size=128, shuffle=True, num_workers=0)
    optimizer = torch.optim.SGD(task.model.parameters(), lr=0.01)

    for _, batch in steps(loader, args, task.model):
        loss = task.loss(task.model, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
