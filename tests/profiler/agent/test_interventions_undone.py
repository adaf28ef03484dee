"""A change that is undone leaves torch, Python and the program's own objects as they were."""

import builtins
import logging
import os
from types import SimpleNamespace

import pytest
import torch
import torch.distributed.fsdp  # what this import does to torch is not part of a change
import torch.utils.checkpoint

from profiler.agent.interventions import apply

OWNERS = (
    torch.utils.data.DataLoader,
    torch.Tensor,
    torch.autograd,
    torch.optim.Optimizer,
    torch.amp.GradScaler,
    torch.nn.utils,
    torch.nn.utils.clip_grad,
    torch.nn.parallel,
    torch.nn.parallel.distributed,
    torch.nn.parallel.DistributedDataParallel,
    builtins,
    logging.Handler,
    os,
)


ELSEWHERE = {"file": "other.py", "line": 1}


class Block(torch.nn.Linear):
    pass


def state():
    # Only one attribute of torch itself: what torch creates on first use is not part of a change.
    return [{"set_anomaly_enabled": torch.set_anomaly_enabled}, *(dict(vars(owner)) for owner in OWNERS)]


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("fp16_autocast", {}),
        ("selective_recompute", {"block": "Block"}),
        ("fsdp2", {"block": "Block"}),
        ("logging", {"every": 3}),
        ("flags", {"anomaly": False}),
        ("evaluation", {}),
        ("autocast", {"dtype": "bfloat16"}),
        ("loader", {**ELSEWHERE, "non_blocking": True}),
        ("micro_batch", {**ELSEWHERE, "pieces": 2}),
        ("no_sync", {"passes": 2}),
        ("ddp_hook", {"dtype": "float16"}),
    ],
)
def test_undone_change_leaves_nothing_behind(name, settings):
    agent = SimpleNamespace(
        torch=torch,
        settings={"trial": {"steps": 30}},
        on_open=[],
        on_call=[],
        on_model=[],
        on_step=[],
        losses=[],
        steps=0,
    )
    before = state()
    undo = apply(agent, name, settings)
    model = torch.nn.Sequential(Block(4, 4), Block(4, 1))
    for act in (*agent.on_call, *agent.on_model):
        act(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    if name != "fsdp2":  # fsdp2 needs ranks
        model(torch.ones(2, 4)).mean().backward()
        optimizer.step()
    undo()

    # Modules that torch imported meanwhile may be there, too.
    assert [{name: now[name] for name in was} for now, was in zip(state(), before, strict=True)] == before
    assert "step" not in vars(optimizer)
    assert not any("forward" in vars(module) for module in model.modules())
