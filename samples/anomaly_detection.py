"""Train a deep, narrow network with autograd's anomaly detection left on after debugging.

With it, each operation of the forward pass records the stack that called it, and each one of the backward pass searches
its gradients for NaN. --fixed leaves it off.
"""

import argparse
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

WIDTH, DEPTH, BATCH = 128, 24, 32


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return x + self.linear(self.norm(x)).relu()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--fixed", action="store_true", help="without anomaly detection")
    args = parser.parse_args()

    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_num_threads(1)  # steadier on a small machine
    torch.autograd.set_detect_anomaly(not args.fixed)
    inputs = torch.randn(args.steps * BATCH, WIDTH)
    targets = inputs.roll(1, dims=1).sin()
    loader = DataLoader(TensorDataset(inputs, targets), batch_size=BATCH)
    model = nn.Sequential(*[Block() for _ in range(DEPTH)]).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)

    for step, (x, y) in enumerate(loader, 1):
        loss = nn.functional.mse_loss(model(x.to(device)), y.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == 10:
            start = time.perf_counter()
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
    if args.steps > 10:
        print(f"{(time.perf_counter() - start) / (args.steps - 10) * 1e3:.1f} ms a step", file=sys.stderr)


if __name__ == "__main__":
    main()
