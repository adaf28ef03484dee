"""C08: a checkpoint every fifth step."""

import tempfile
from pathlib import Path

import torch
from torch.utils.data import DataLoader
from training import begin, steps


def main():
    args, task = begin(__doc__, model="mlp-1536")
    every = 5
    if args.fixed:
        every = args.every or 50
    loader = DataLoader(task.samples, batch_size=task.batch, shuffle=True, num_workers=0)
    optimizer = torch.optim.Adam(task.model.parameters(), fused=True)

    with tempfile.TemporaryDirectory() as folder:
        for step, batch in steps(loader, args, task.model):
            loss = task.loss(task.model, batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % every == 0:
                state = {"model": task.model.state_dict(), "optimizer": optimizer.state_dict()}
                torch.save(state, Path(folder) / "last.pt")


if __name__ == "__main__":
    main()
