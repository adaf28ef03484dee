"""Train a small GPT in fp32, with attention that writes its scores to memory: slow and large on a GPU.

fp32 matmuls leave the tensor cores idle, and the attention scores fill the memory. --fixed runs the forward pass under
bf16 autocast, which halves the memory and uses the tensor cores. On a CPU the model is tiny and --fixed changes
nothing: this sample is about GPUs.
"""

import argparse
import sys
import time
from contextlib import nullcontext

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def attention(self, x):
        rows, length, width = x.shape
        q, k, v = self.qkv(x).view(rows, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
        future = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        mixed = scores.masked_fill(future, float("-inf")).softmax(-1) @ v
        return self.out(mixed.transpose(1, 2).reshape(rows, length, width))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, vocabulary, length, width, depth, heads):
        super().__init__()
        self.token, self.position = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary)

    def forward(self, tokens):
        x = self.token(tokens) + self.position(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, help="default: 60 on a GPU, 150 on a CPU")
    parser.add_argument("--fixed", action="store_true", help="bfloat16 autocast on a GPU")
    args = parser.parse_args()

    torch.manual_seed(0)
    gpu = torch.cuda.is_available()
    device = "cuda" if gpu else "cpu"
    if gpu:
        vocabulary, length, width, depth, heads = 16384, 1024, 256, 8, 8
        batch = max(1, torch.cuda.mem_get_info()[0] // 850_000_000)  # a row of 1,024 tokens takes about 0.75 GB
    else:
        torch.set_num_threads(1)  # steadier on a small machine
        vocabulary, length, width, depth, heads, batch = 256, 32, 64, 2, 4, 8
    steps = args.steps or (60 if gpu else 150)

    tokens = torch.arange(length + 1) * torch.randint(1, 8, (steps * batch, 1)) % vocabulary
    loader = DataLoader(TensorDataset(tokens), batch_size=batch, pin_memory=gpu)
    model = GPT(vocabulary, length, width, depth, heads).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

    for step, (rows,) in enumerate(loader, 1):
        rows = rows.to(device, non_blocking=True)
        with torch.autocast("cuda", dtype=torch.bfloat16) if gpu and args.fixed else nullcontext():
            loss = nn.functional.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == 10:
            start = time.perf_counter()
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
    if steps > 10:
        print(f"{(time.perf_counter() - start) / (steps - 10) * 1e3:.1f} ms a step", file=sys.stderr)


if __name__ == "__main__":
    main()
