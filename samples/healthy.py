"""Train a small GPT efficiently: nothing here is slow on purpose, so there should be no advice.

It uses bf16 autocast, scaled_dot_product_attention, the fused optimizer and a full batch on a GPU; its data is ready in
time, and it logs rarely.
"""

import argparse
import sys
import time
from contextlib import nullcontext

import torch
from torch import nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention
from torch.utils.data import DataLoader, TensorDataset


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        rows, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(rows, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(rows, length, width))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, vocabulary, length, width, depth, heads):
        super().__init__()
        self.token, self.position = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*[Block(width, heads) for _ in range(depth)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary)

    def forward(self, tokens):
        x = self.token(tokens) + self.position(torch.arange(tokens.shape[1], device=tokens.device))
        return self.head(self.norm(self.blocks(x)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--fixed", action="store_true", help="changes nothing: there is nothing to fix")
    args = parser.parse_args()

    torch.manual_seed(0)
    gpu = torch.cuda.is_available()
    device = "cuda" if gpu else "cpu"
    if gpu:
        vocabulary, length, width, depth, heads, batch = 16384, 1024, 2048, 6, 16, 16
    else:
        torch.set_num_threads(1)  # steadier on a small machine
        vocabulary, length, width, depth, heads, batch = 256, 64, 128, 2, 4, 8

    tokens = torch.arange(length + 1) * torch.randint(1, 8, (args.steps * batch, 1)) % vocabulary
    loader = DataLoader(TensorDataset(tokens), batch_size=batch, pin_memory=gpu)
    model = GPT(vocabulary, length, width, depth, heads).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)

    for step, (rows,) in enumerate(loader, 1):
        rows = rows.to(device, non_blocking=True)
        with torch.autocast("cuda", dtype=torch.bfloat16) if gpu else nullcontext():
            loss = cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == 10:
            start = time.perf_counter()
        if step % 25 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
    if args.steps > 10:
        print(f"{(time.perf_counter() - start) / (args.steps - 10) * 1e3:.1f} ms a step", file=sys.stderr)


if __name__ == "__main__":
    main()
