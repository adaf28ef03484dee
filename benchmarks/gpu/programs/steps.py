"""Train at several step lengths, one after the other, each host-bound; print the median step of each.

`--micro` splits each step into micro-batches; `--large` makes each matmul so large that the GPU sets the pace.
"""

import argparse

import torch
from common import Pace, digest, say

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument(
    "--layers", type=int, nargs="*", default=[12, 40, 160], help="one step length each: about 2, 5, 20 ms"
)
parser.add_argument("--seconds", type=float, default=2.0, help="seconds per step length, with an estimated step time")
parser.add_argument("--steps", type=int, default=0, help="steps per step length, instead of --seconds")
parser.add_argument("--least", type=float, default=0.0, help="least seconds per step length")
parser.add_argument("--micro", type=int, default=1)
parser.add_argument("--large", type=int, default=64, help="width of the layers")
parser.add_argument("--batch", type=int, default=16)
args = parser.parse_args()

torch.manual_seed(0)
paces, losses, ends = [], [], []
for layers in args.layers:
    model = torch.nn.Sequential(*[torch.nn.Linear(args.large, args.large) for _ in range(layers)]).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    x = torch.randn(args.batch, args.large, device="cuda")
    pace = Pace()
    steps = args.steps or max(60, int(args.seconds / (layers * 125e-6)))
    while len(pace.ends) <= steps or pace.ends[-1] - pace.ends[0] < args.least:
        for _ in range(args.micro):
            loss = model(x).square().mean()
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.current_stream().synchronize()
        pace.step()
    paces.append(pace.median())
    losses.append(loss.item())
    ends.append(pace.ends)
    del model, optimizer, loss
free, total = torch.cuda.mem_get_info()
say(paces=paces, losses=digest(losses), ends=ends, gpu_used=total - free)
