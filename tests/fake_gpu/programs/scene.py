"""A training run whose GPU work is exactly what its one argument, a JSON object, sets: seconds, MiB and counts."""

import contextlib
import json
import os
import sys
import time
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset

given = json.loads(sys.argv[1])
MIB = 1 << 20
stamps = []


def stamp(what):
    stamps.append((what, time.time_ns()))


def spin(what):
    torch.cuda._sleep(round(given.get(what, 0) * 1e9))


class Spin(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        time.sleep(given.get("host", 0))
        spin("forward")
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        spin("backward")
        return gradient


class Early(torch.autograd.Function):
    """An operation between two layers: the gradients of the later layer are ready before its own backward pass."""

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        spin("between")
        return gradient


class Model(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = torch.nn.Linear(width, width, bias=False)
        self.last = torch.nn.Linear(width, width, bias=False)

    def forward(self, x):
        if "prefetch" in given:
            with torch.cuda.stream(aside):
                ahead.copy_(to_come, non_blocking=True)
        return self.last(Early.apply(self.first(Spin.apply(x.requires_grad_()))))


class Optimizer(torch.optim.SGD):
    def step(self, closure=None):
        spin("optimizer")
        return super().step(closure)


class Data(Dataset):
    def __len__(self):
        return given["steps"] * given.get("accumulate", 1)

    def __getitem__(self, index):
        time.sleep(given.get("data", 0))
        return torch.zeros(1, given.get("width", 64))


rank = int(os.environ.get("LOCAL_RANK", 0))
device = torch.device(given.get("device", f"cuda:{rank}"))
if "RANK" in os.environ:
    torch.cuda.set_device(device)
    torch.distributed.init_process_group("nccl")
if rank == 1:
    given |= given.get("second rank", {})
model = Model(given.get("width", 64)).to(device)
if "RANK" in os.environ:
    model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[rank], bucket_cap_mb=0.01)
optimizer = Optimizer(model.parameters(), lr=0.1)
loader = DataLoader(Data(), batch_size=None)
held = torch.empty(given.get("hold", 0) * MIB, dtype=torch.uint8, device=device)
if given.get("side"):
    torch.cuda.set_stream(torch.cuda.Stream(device))
copies = [
    (
        torch.empty(size, dtype=torch.uint8, pin_memory=pinned),
        torch.empty(size, dtype=torch.uint8, device=device),
        free,
    )
    for size, pinned, free in given.get("copies", ())
]
if "prefetch" in given:
    aside = torch.cuda.Stream(device)
    to_come = torch.empty(given["prefetch"], dtype=torch.uint8, pin_memory=True)
    ahead = torch.empty(given["prefetch"], dtype=torch.uint8, device=device)

with torch.cuda.device(device) if given.get("switch") else contextlib.nullcontext():
    batches = iter(loader)
    reached = []
    for number in range(len(loader)):
        if number >= 2:
            reached[-2].synchronize()  # the host is two batches ahead, as with a full queue
        stamp("fetch")
        x = next(batches)
        stamp("fetched")
        x = x.to(device, non_blocking=True)
        for source, target, free in copies:
            target.copy_(source, non_blocking=free)
        if copies:
            time.sleep(given.get("late", 0))
        stamp("forward")
        loss = model(x)
        stamp("forward end")
        loss = loss.sum()
        stamp("backward")
        loss.backward()
        stamp("backward end")
        if given.get("item"):
            loss.item()
            time.sleep(given.get("late", 0))
        if (number + 1) % given.get("accumulate", 1) == 0:
            stamp("optimizer")
            optimizer.step()
            stamp("optimizer end")
            optimizer.zero_grad()
            spin("other")
        reached.append(torch.cuda.Event())
        reached[-1].record(torch.cuda.current_stream(device))
torch.cuda.synchronize(device)
Path(os.environ["FAKECUDA_LOG"], f"{rank}-{os.getpid()}.json").write_text(json.dumps(stamps))
if rank == 0:
    print("peak", torch.cuda.max_memory_allocated(device), torch.cuda.max_memory_reserved(device))
if "RANK" in os.environ:
    torch.distributed.destroy_process_group()
