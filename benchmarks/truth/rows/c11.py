"""C11: the optimizer walks 1,200 small tensors one by one."""

import torch
from torch.utils.data import DataLoader
from training import begin, steps


def main():
    args, task = begin(__doc__, model="narrow-32")
    loader = DataLoader(task.samples, batch_size=task.batch, shuffle=True, num_workers=0)
    optimizer = torch.optim.AdamW(task.model.parameters())
    if args.fixed:
        optimizer = torch.optim.AdamW(task.model.parameters(), fused=True)

    for _, batch in steps(loader, args, task.model):
        loss = task.loss(task.model, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
