"""C10: anomaly detection was left on."""

import torch
from torch.utils.data import DataLoader
from training import begin, steps


def main():
    args, task = begin(__doc__, model="deep-256")
    torch.autograd.set_detect_anomaly(True)
    if args.fixed:
        torch.autograd.set_detect_anomaly(False)
    loader = DataLoader(task.samples, batch_size=task.batch, shuffle=True, num_workers=0)
    optimizer = torch.optim.SGD(task.model.parameters(), lr=0.01)

    for _, batch in steps(loader, args, task.model):
        loss = task.loss(task.model, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
