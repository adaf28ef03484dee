"""A transformer as plain functions over a dictionary of tensors."""

import math

import torch
import torch.nn.functional as F
from clock import running


def init(d=128, layers=3, vocab=400, seed=0):
    g = torch.Generator().manual_seed(seed)

    def r(*s):
        return (torch.randn(*s, generator=g) / math.sqrt(s[0])).requires_grad_()

    p = {"emb": r(vocab, d), "out": r(d, vocab)}
    for i in range(layers):
        p |= {f"{i}.qkv": r(d, 3 * d), f"{i}.o": r(d, d), f"{i}.up": r(d, 4 * d), f"{i}.down": r(4 * d, d)}
    return p


def attention(p, i, x, heads=4):
    b, t, d = x.shape
    q, k, v = (x @ p[f"{i}.qkv"]).view(b, t, 3, heads, d // heads).permute(2, 0, 3, 1, 4)
    out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return out.transpose(1, 2).reshape(b, t, d) @ p[f"{i}.o"]


def mlp(p, i, x):
    return F.gelu(x @ p[f"{i}.up"]) @ p[f"{i}.down"]


def apply(p, tokens, layers=3):
    x = p["emb"][tokens]
    for i in range(layers):
        x = x + attention(p, i, F.layer_norm(x, x.shape[-1:]))
        x = x + mlp(p, i, F.layer_norm(x, x.shape[-1:]))
    return x @ p["out"]


params = init()
opt = torch.optim.AdamW(params.values(), lr=1e-3, fused=True)


def loss_fn(p, tokens):
    logits = apply(p, tokens[:, :-1])
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), tokens[:, 1:].reshape(-1))


def update(p, tokens):
    loss = loss_fn(p, tokens)
    opt.zero_grad()
    loss.backward()
    opt.step()
    return loss.detach()


while running():
    update(params, torch.randint(0, 400, (8, 65)))
