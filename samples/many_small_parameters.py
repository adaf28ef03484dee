"""Train a very deep, very narrow network: the optimizer updates its 1,200 small tensors one by one.

By default, AdamW updates one tensor after the other on a CPU, and launches many small kernels on a GPU. --fixed passes
fused=True, which updates all of them in one call.
"""

import argparse
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

WIDTH, DEPTH, BATCH = 32, 300, 64


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, x):
        return self.norm(x + self.linear(x))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--fixed", action="store_true", help="use the fused optimizer")
    args = parser.parse_args()

    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_num_threads(1)  # steadier on a small machine
    inputs = torch.randn(args.steps * BATCH, WIDTH)
    targets = inputs.roll(1, dims=1).sin()
    loader = DataLoader(TensorDataset(inputs, targets), batch_size=BATCH)
    model = nn.Sequential(*[Block() for _ in range(DEPTH)]).to(device)
    cure = {"fused": True} if args.fixed else {}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, **cure)

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
