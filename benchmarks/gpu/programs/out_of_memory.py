"""Train with batches that grow until the GPU's memory is used up."""

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.wide, self.narrow = nn.Linear(1024, 4096), nn.Linear(4096, 1024)

    def forward(self, x):
        return x + self.narrow(nn.functional.gelu(self.wide(x)))


model = nn.Sequential(*[Block() for _ in range(8)]).cuda()
optimizer = torch.optim.AdamW(model.parameters())
free = torch.cuda.mem_get_info()[0]
rows = 1024
step = 0
while True:
    model(torch.randn(rows, 1024, device="cuda")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    step += 1
    if step > 60:
        rows = int(rows * 1.25)
