"""Write a raw torch.profiler trace of three training steps to the file named on the command line."""

import sys

import torch
from common import say

model = torch.nn.Sequential(*[layer for _ in range(8) for layer in (torch.nn.Linear(512, 512), torch.nn.GELU())]).cuda()
optimizer = torch.optim.AdamW(model.parameters())
x = torch.randn(256, 512)
schedule = torch.profiler.schedule(wait=2, warmup=2, active=3, repeat=1)
with torch.profiler.profile(
    schedule=schedule, record_shapes=True, on_trace_ready=lambda trace: trace.export_chrome_trace(sys.argv[1])
) as profiler:
    for _ in range(8):
        model(x.to("cuda", non_blocking=True)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        profiler.step()
say(written=sys.argv[1])
