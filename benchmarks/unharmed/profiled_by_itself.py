"""Use torch.profiler itself with a schedule."""

import torch
from ending import model, say, train

network = model()
schedule = torch.profiler.schedule(wait=1, warmup=1, active=2)
losses = []
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], schedule=schedule) as profiler:
    for _ in range(10):
        losses += train(network, steps=1)
        profiler.step()
names = sorted({event.key for event in profiler.key_averages() if event.key.startswith("aten::")})
say(losses, names, network=network)
