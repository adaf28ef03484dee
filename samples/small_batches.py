"""Train with two rows per step: a GPU idles between the launches of tiny kernels.

Each step pays its fixed cost (Python, launches, the optimizer) for almost no work. --fixed takes 128 rows per step. A
larger batch needs another learning rate: here it grows with the square root of the batch, as is usual for Adam.
"""

import argparse
import itertools
import math
import sys
import time
from contextlib import nullcontext

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

FEATURES, CLASSES, SMALL, LARGE = 256, 10, 2, 128


def network(width, depth=8):
    sizes = [FEATURES] + [width] * depth
    layers = [layer for a, b in itertools.pairwise(sizes) for layer in (nn.Linear(a, b), nn.GELU())]
    return nn.Sequential(*layers, nn.Linear(width, CLASSES))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--fixed", action="store_true", help="use a larger batch")
    args = parser.parse_args()

    torch.manual_seed(0)
    gpu = torch.cuda.is_available()
    device = "cuda" if gpu else "cpu"
    torch.set_num_threads(1)  # steadier on a small machine
    batch = LARGE if args.fixed else SMALL
    inputs = torch.randn(args.steps * batch, FEATURES)
    labels = (inputs @ torch.randn(FEATURES, CLASSES)).argmax(1)
    loader = DataLoader(TensorDataset(inputs, labels), batch_size=batch, pin_memory=gpu)
    model = network(1024 if gpu else 384).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4 * math.sqrt(batch / SMALL), fused=True)

    for step, (x, y) in enumerate(loader, 1):
        x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
        with torch.autocast("cuda", dtype=torch.bfloat16) if gpu else nullcontext():
            loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == 10:
            start = time.perf_counter()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
    if args.steps > 10:
        seconds = (time.perf_counter() - start) / (args.steps - 10)
        print(f"{seconds * 1e3:.1f} ms a step, {batch / seconds:.0f} rows a second", file=sys.stderr)


if __name__ == "__main__":
    main()
