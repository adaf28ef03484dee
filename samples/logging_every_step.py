"""Train a small network that spends as long on logging as on training.

After every step, it computes a histogram of every parameter, formats it, writes it and syncs it to disk. With --fixed,
it does so after every 25th step.
"""

import argparse
import itertools
import json
import os
import sys
import tempfile
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

FEATURES, CLASSES, BATCH = 256, 10, 16


def network(width=768, depth=5):
    sizes = [FEATURES] + [width] * depth
    layers = [layer for a, b in itertools.pairwise(sizes) for layer in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(width, CLASSES))


def log_histograms(log, step, model):
    bins = {name: parameter.detach().histc(64, -1, 1).tolist() for name, parameter in model.named_parameters()}
    log.write(json.dumps({"step": step, "histograms": bins}) + "\n")
    log.flush()
    os.fsync(log.fileno())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--fixed", action="store_true", help="log every 25th step")
    args = parser.parse_args()

    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_num_threads(1)  # steadier on a small machine
    inputs = torch.randn(4000, FEATURES)
    labels = (inputs @ torch.randn(FEATURES, CLASSES)).argmax(1)
    loader = DataLoader(TensorDataset(inputs, labels), batch_size=BATCH, shuffle=True)
    model = network().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, fused=True)
    every = 25 if args.fixed else 1

    step = 0
    with tempfile.TemporaryFile("w") as log:
        while step < args.steps:
            for x, y in loader:
                step += 1
                loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                if step % every == 0:
                    log_histograms(log, step, model)
                if step == 10:
                    start = time.perf_counter()
                if step % 10 == 0:
                    print(f"step {step} loss {loss.item():.3f}", flush=True)
                if step == args.steps:
                    break
    if args.steps > 10:
        print(f"{(time.perf_counter() - start) / (args.steps - 10) * 1e3:.1f} ms a step", file=sys.stderr)


if __name__ == "__main__":
    main()
