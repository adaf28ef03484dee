"""Ranks that each hold a shard of the model train like ranks that each hold all of it."""

import pytest
from programs import ENDS_GROUP, ON_RANKS, TORCH

LOOP = (
    ENDS_GROUP
    + TORCH
    + """
import json, torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = torch.nn.Linear(32, 32)
    def forward(self, features):
        return features + self.lin(features).relu()

torch.set_num_threads(1)
dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())  # each rank begins with other weights, and sees batches of its own
net = torch.nn.Sequential(torch.nn.Linear(8, 32), Block(), Block(), torch.nn.Linear(32, 1))
BEFORE
model = MODEL
AFTER
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.99)
for step in range(100):
    with model.no_sync():
        (model(torch.randn(4, 8)).square().mean() + 0.1).backward()
    loss = model(torch.randn(4, 8)).square().mean() + 0.1
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    scheduler.step()
    optimizer.zero_grad()
    if step == 20:
        def held(tensor):
            return getattr(tensor, "_local_tensor", tensor).numel()
        states = [held(value) for state in optimizer.state.values() for value in state.values()]
        names = sorted({type(module).__name__ for module in model.modules()})
        line = json.dumps([sum(map(held, model.parameters())), sum(states), names])
        print(f"seen: {line}\\n", end="", flush=True)  # in one piece: the other rank writes too
"""
)
OPTIMIZER = """
optimizer = torch.optim.AdamW(
    [{"params": net[0].parameters(), "lr": 0.02}, {"params": net[1:].parameters()}]
)
"""
WRAPPED = "DistributedDataParallel(net)"
TWO = (*ON_RANKS, "2")
CHANGE = ("fsdp2", {"block": "Block"})


def loop(before="pass", after=OPTIMIZER, model=WRAPPED):
    return LOOP.replace("BEFORE", before).replace("AFTER", after).replace("MODEL", model)


@pytest.mark.parametrize("is_made", ["before", pytest.param("after", marks=pytest.mark.slow)])
def test_ranks_shard_parameters_and_state_with_same_losses(tried, is_made):
    program = loop(OPTIMIZER, "pass") if is_made == "before" else loop()
    plain = tried(program, launcher=TWO)
    changed = tried(program, CHANGE, launcher=TWO)

    assert not changed.failed
    (parameters, state, _), _ = plain.seen
    assert sum(held for held, _, _ in changed.seen) == parameters
    assert max(held for held, _, _ in changed.seen) < 0.6 * parameters
    assert max(held for _, held, _ in changed.seen) < 0.6 * state
    assert "FSDPBlock" in changed.seen[0][2]
    for rank in (0, 1):
        assert changed.losses[rank] == pytest.approx(plain.losses[rank], rel=1e-4)
    assert changed.ran.run.outcome == "completed"


@pytest.mark.slow
def test_ranks_with_independent_models_are_reported(tried):
    alone = loop(model="net").replace("with model.no_sync():", "if True:")

    assert tried(alone, CHANGE, launcher=TWO).codes == {"no-target"}
