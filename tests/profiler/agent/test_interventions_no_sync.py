"""Ranks that accumulate gradients reduce them once per update."""

import pytest
from programs import ENDS_GROUP, ON_RANKS, TORCH

LOOP = (
    ENDS_GROUP
    + TORCH
    + """
import contextlib, json, torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

reduced = 0

def hook(state, bucket):
    global reduced
    reduced += 1
    return allreduce_hook(None, bucket)

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
model = MODEL
torch.manual_seed(rank)  # each rank sees batches of its own
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(100):
    before = reduced
    for micro in range(2 if step == SHORT else 3):
        leaves_out = OWN and step > 5 and micro < 2
        with model.no_sync() if leaves_out else contextlib.nullcontext():
            loss = model(torch.randn(4, 8)).square().mean() + 0.1
            (loss / 3).backward()
    with torch.no_grad():
        model(torch.ones(1, 8))
    optimizer.step()
    optimizer.zero_grad()
    if step == 20:
        line = json.dumps([reduced - before, net[0].weight.sum().item()])
        print(f"seen: {line}\\n", end="", flush=True)  # in one piece: the other rank writes too
"""
)
ALONE = "import os\nos.environ.update(RANK='0', WORLD_SIZE='1', MASTER_ADDR='127.0.0.1', MASTER_PORT='0')\n"
"""Start of a program with a single rank: it does everything that ranks do, and costs one import of torch."""
TWO = (*ON_RANKS, "2")
DDP = "torch.nn.parallel.DistributedDataParallel(net); model.register_comm_hook(None, hook)"
CHANGE = ("no_sync", {"passes": 3})


def loop(model=DDP, short=-1, own=False):
    return LOOP.replace("MODEL", model).replace("SHORT", str(short)).replace("OWN", str(own))


def test_only_last_pass_of_update_reduces_and_losses_stay_the_same(tried):
    plain = tried(loop(), launcher=TWO)
    changed = tried(loop(), CHANGE, launcher=TWO)

    assert [reductions for reductions, _ in plain.seen] == [3, 3]
    assert [reductions for reductions, _ in changed.seen] == [1, 1]
    assert not changed.failed
    weights = [weight for _, weight in changed.seen]
    assert weights[0] == weights[1] == pytest.approx(plain.seen[0][1], rel=1e-5)
    assert len(plain.losses) == len(changed.losses) == 2
    for before, after in zip(plain.losses, changed.losses, strict=True):
        assert len(after) >= 90
        assert after[:90] == pytest.approx(before[:90], rel=1e-5)
    assert plain.losses[0] != plain.losses[1]
    for each in (plain, changed):
        assert (each.ran.run.outcome, each.ran.run.exit_status) == ("completed", 0)
        assert sorted(len([step for step in each.ran.steps if step.pid == rank.pid]) for rank in each.ran.ranks) == [
            30,
            30,
        ]


def test_update_with_fewer_passes_is_reported(tried):
    changed = tried(ALONE + loop(short=15), CHANGE)

    assert changed.codes == {"unsuitable"}


def test_program_that_already_uses_no_sync_is_reported(tried):
    changed = tried(ALONE + loop(own=True), CHANGE)

    assert "program-does" in changed.codes
