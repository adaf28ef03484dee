"""C14: two ranks exchange their gradients after each of the eight micro-steps of a step."""

from contextlib import nullcontext

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler
from training import begin, steps

ACCUMULATED = 8


def main():
    args, task = begin(__doc__, model="mlp-2048", steps=ACCUMULATED * 60)
    distributed.init_process_group("gloo")
    loader = DataLoader(task.samples, batch_size=task.batch, num_workers=0, sampler=DistributedSampler(task.samples))
    model = DistributedDataParallel(task.model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    for step, batch in steps(loader, args, model):
        last = step % ACCUMULATED == 0
        with model.no_sync() if args.fixed and not last else nullcontext():
            loss = task.loss(model, batch)
            (loss / ACCUMULATED).backward()
        if last:
            optimizer.step()
            optimizer.zero_grad()
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
