"""HC3: the forward pass takes longer in some steps than in others, as a simulator in it would."""

import math
import random
import time

import torch
from torch.utils.data import DataLoader
from training import begin, steps


def main():
    args, task = begin(__doc__)
    loader = DataLoader(task.samples, batch_size=task.batch, shuffle=True, num_workers=0)
    chance = random.Random(0)
    task.model.register_forward_pre_hook(lambda *_: time.sleep(chance.lognormvariate(math.log(0.009), 0.45)))
    optimizer = torch.optim.SGD(task.model.parameters(), lr=0.01)

    for _, batch in steps(loader, args, task.model):
        loss = task.loss(task.model, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
