"""Ranks that share the optimizer's state train like ranks that each hold all of it."""

from programs import ENDS_GROUP, ON_RANKS, TORCH

LOOP = (
    ENDS_GROUP
    + TORCH
    + """
import json, torch
import torch.distributed as dist
from torch.optim import AdamW

torch.set_num_threads(1)
dist.init_process_group("gloo")
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 32), torch.nn.Linear(32, 1))
model = MODEL
torch.manual_seed(dist.get_rank())  # each rank sees batches of its own
optimizer = torch.optim.AdamW(
    [{"params": net[0].parameters(), "lr": 0.02}, {"params": list(net[2:].parameters())}], 0.05, weight_decay=0.1
)
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.99)
for step in range(100):
    loss = model(torch.randn(4, 8)).square().mean() + 0.1
    loss.backward()
    optimizer.step()
    scheduler.step()
    optimizer.zero_grad()
    if step == 20:
        kept = getattr(optimizer, "optim", optimizer).state.values()
        held = sum(value.numel() for state in kept for value in state.values())
        line = json.dumps([held, net[2].weight.sum().item()])
        print(f"seen: {line}\\n", end="", flush=True)  # in one piece: the other rank writes too
"""
)
ALONE = "import os\nos.environ.update(RANK='0', WORLD_SIZE='1', MASTER_ADDR='127.0.0.1', MASTER_PORT='0')\n"
"""Start of a program with a single rank: it does everything that ranks do, and costs one import of torch."""
TWO = (*ON_RANKS, "2")
CHANGE = ("zero_redundancy", {"name": "AdamW"})


def loop(model="torch.nn.parallel.DistributedDataParallel(net)"):
    return LOOP.replace("MODEL", model)


def test_ranks_shard_optimizer_state_with_same_losses(tried):
    plain = tried(loop(), launcher=TWO)
    changed = tried(loop(), CHANGE, launcher=TWO)

    assert not changed.failed
    (all_of_it, weight), _ = plain.seen
    parts = [held for held, _ in changed.seen]
    assert sum(parts) == all_of_it
    assert max(parts) < all_of_it
    assert [seen for _, seen in changed.seen] == [weight, weight]
    assert changed.losses == plain.losses
    assert len(set(plain.losses[0])) > 25
    assert changed.ran.run.outcome == "completed"


def test_rank_with_independent_model_is_reported(tried):
    changed = tried(ALONE + loop("net"), CHANGE)

    assert changed.codes == {"no-target"}


def test_program_without_ranks_is_unchanged_and_reported(tried):
    alone = loop("net").replace('dist.init_process_group("gloo")\n', "").replace("dist.get_rank()", "0")
    changed = tried(alone, CHANGE)

    assert changed.codes == {"no-target"}
    assert changed.losses == tried(alone).losses
