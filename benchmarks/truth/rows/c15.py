"""C15: the second of two ranks takes 60 ms longer for every step."""

import time

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler
from training import begin, steps


def main():
    args, task = begin(__doc__, model="mlp-768")
    distributed.init_process_group("gloo")
    loader = DataLoader(task.samples, batch_size=task.batch, num_workers=0, sampler=DistributedSampler(task.samples))
    model = DistributedDataParallel(task.model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    for _, batch in steps(loader, args, model):
        if distributed.get_rank() == 1 and not args.fixed:
            time.sleep(0.06)
        loss = task.loss(model, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
