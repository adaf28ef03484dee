"""Nested generators that parse log lines, one record at a time."""

import itertools
import random
import re

import torch
from clock import FIXED, running
from torch import nn

LINE = re.compile(
    r'(?P<ip>[\d.]+) - \[(?P<time>[^\]]*)\] "(?P<verb>\w+) (?P<path>\S+)[^"]*" (?P<status>\d+) (?P<size>\d+)'
)


def fake(number=4096):
    for _ in range(number):
        ip = ".".join(str(random.randrange(256)) for _ in range(4))
        request = f"{random.choice(['GET', 'POST'])} /{'x' * random.randrange(80)} HTTP/1.0"
        yield f'{ip} - [10/Oct/2000] "{request}" {random.choice([200, 301, 404])} {random.randrange(10**5)}'


def parse(lines):
    for line in lines:
        yield LINE.match(line).groupdict()  # planted


def features(records):
    for record in records:
        parts = [int(part) / 255 for part in record["ip"].split(".")]  # planted
        rest = [len(record["path"]) / 50, int(record["size"]) / 1e5, float(record["verb"] == "GET")]  # planted
        yield parts + rest, int(record["status"]) // 100 - 2  # planted


def batched(items, size):
    while held := list(itertools.islice(items, size)):
        yield held


def tensors(batches):
    for batch in batches:
        x, y = zip(*batch, strict=True)
        yield torch.tensor(x), torch.tensor(y)  # planted


lines = list(fake())
made = tensors(batched(features(parse(itertools.cycle(lines))), 128))
model = nn.Sequential(nn.Linear(7, 64), nn.ReLU(), nn.Linear(64, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in itertools.cycle(list(itertools.islice(made, 32))) if FIXED else made:
    if not running():
        break
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
