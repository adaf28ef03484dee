"""Train a model compiled with mode="reduce-overhead": CUDA graphs under torch.compile."""

import torch
from common import digest, say

torch.manual_seed(0)
torch.use_deterministic_algorithms(True, warn_only=True)
model = torch.nn.Sequential(*[layer for _ in range(4) for layer in (torch.nn.Linear(256, 256), torch.nn.GELU())]).cuda()
step = torch.compile(model, mode="reduce-overhead")
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
losses = []
x = torch.randn(512, 256, device="cuda")
for number in range(1500):
    torch.compiler.cudagraph_mark_step_begin()
    loss = step(x).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if number % 100 == 0:
        losses.append(loss.item())
say(losses=digest(losses))
