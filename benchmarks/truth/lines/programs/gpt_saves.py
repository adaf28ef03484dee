"""A small GPT that is saved every second step."""

import torch
from clock import FIXED, running
from torch import nn

EVERY = 200 if FIXED else 2


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(width), nn.MultiheadAttention(width, 4, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        h = self.norm(x)
        x = x + self.attention(h, h, h, need_weights=False)[0]
        return x + self.mlp(x)


model = nn.Sequential(nn.Embedding(500, 128), Block(128), Block(128), nn.Linear(128, 500))
optimizer = torch.optim.AdamW(model.parameters())


def save(step):
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
    torch.save(state, "gpt.pt")  # planted


step = 0
while running():
    tokens = torch.randint(0, 500, (4, 33))
    logits = model(tokens[:, :-1])
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    step += 1
    if step % EVERY == 0:
        save(step)  # planted
