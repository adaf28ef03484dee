"""Train with phases of known length: each spins the GPU for a time that the program chose.

The loader takes 5 ms per batch. 12 ms of GPU work hide it; with 2 ms, the program waits for it.
"""

import argparse
import time

import torch
from common import Pace, say, spin, spin_rate
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--steps", type=int, default=400)
parser.add_argument("--forward", type=float, default=0.004, help="seconds")
parser.add_argument("--backward", type=float, default=0.006, help="seconds")
parser.add_argument("--optimizer", type=float, default=0.002, help="seconds")
args = parser.parse_args()
RATE = None


class Batches(Dataset):
    def __len__(self):
        return args.steps

    def __getitem__(self, index):
        time.sleep(0.005)
        return torch.full((8,), float(index))


class Spin(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        spin(args.forward, RATE)
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        spin(args.backward, RATE)
        return gradient


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(8))

    def forward(self, x):
        return Spin.apply(self.scale * x)


class Slow(torch.optim.SGD):
    def step(self, closure=None):
        spin(args.optimizer, RATE)
        return super().step(closure)


def main():
    global RATE
    model = Model().cuda()
    optimizer = Slow(model.parameters(), lr=1e-6)
    RATE = spin_rate()
    pace = Pace()
    for batch in DataLoader(Batches(), batch_size=None, num_workers=1, pin_memory=True, prefetch_factor=4):
        model(batch.to("cuda", non_blocking=True)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.current_stream().synchronize()  # the host keeps step with the GPU
        pace.step()
    say(step=pace.median(), forward=args.forward, backward=args.backward, optimizer=args.optimizer)


if __name__ == "__main__":
    main()
