"""Attention whose position bias is written value by value in the forward pass."""

import math

import torch
from clock import FIXED, running
from torch import nn


class Attention(nn.Module):
    def __init__(self, d=96, heads=4):
        super().__init__()
        self.qkv, self.proj, self.heads = nn.Linear(d, 3 * d), nn.Linear(d, d), heads

    def bias(self, n):
        if FIXED:
            at = torch.arange(n)
            gap = at[:, None] - at[None]
            return torch.where(gap < 0, -1e9, -0.05 * gap.float())
        mask = torch.zeros(n, n)
        for i in range(n):
            for j in range(n):
                mask[i, j] = -1e9 if j > i else -0.05 * (i - j)  # planted
        return mask

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        weights = (q @ k.transpose(-1, -2) / math.sqrt(d // self.heads) + self.bias(n)).softmax(-1)
        return self.proj((weights @ v).transpose(1, 2).reshape(b, n, d))


class LM(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.att, self.head = nn.Embedding(200, 96), Attention(), nn.Linear(96, 200)

    def forward(self, ids):
        x = self.emb(ids)
        return self.head(x + self.att(x))


model = LM()
opt = torch.optim.AdamW(model.parameters(), 3e-4)
while running():
    ids = torch.randint(0, 200, (16, 49))
    loss = nn.functional.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()
