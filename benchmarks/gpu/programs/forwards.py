"""Run forward passes without an optimizer; print whether memory grows."""

import argparse
import resource

import torch
from common import say

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--forwards", type=int, default=200_000)
args = parser.parse_args()

model = torch.nn.Linear(64, 64).cuda()
x = torch.randn(8, 64, device="cuda")


def memory():
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    with open("/proc/self/statm") as file:
        resident = int(file.read().split()[1]) * resource.getpagesize()
    return resident, total - free


with torch.no_grad():
    for forward in range(args.forwards):
        model(x)
        if forward == args.forwards // 10:
            early = memory()
late = memory()
say(resident_growth=late[0] - early[0], gpu_growth=late[1] - early[1])
