"""Capture a whole training step as a CUDA graph and replay it, as torch's documentation does."""

import torch
from common import digest, say

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 10)).cuda()
loss_of = torch.nn.CrossEntropyLoss()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, capturable=True)
inputs, targets = torch.randn(512, 64, device="cuda"), torch.randint(10, (512,), device="cuda")

side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    for _ in range(15):
        optimizer.zero_grad(set_to_none=True)
        loss_of(model(inputs), targets).backward()
        optimizer.step()
torch.cuda.current_stream().wait_stream(side)

graph = torch.cuda.CUDAGraph()
optimizer.zero_grad(set_to_none=True)
with torch.cuda.graph(graph):
    loss = loss_of(model(inputs), targets)
    loss.backward()
    optimizer.step()

losses = []
for replay in range(200):
    graph.replay()
    if replay % 20 == 0:
        losses.append(loss.item())
say(losses=digest(losses))
