"""A change that is taken back leaves torch, Python and the program's own things as they were."""

import builtins
import logging
import os
from types import SimpleNamespace

import pytest
import torch
import torch.distributed.fsdp  # what its import does to torch is no part of a change
import torch.utils.checkpoint

from profiler.agent.interventions import apply

OWNERS = (
    torch.Tensor,
    torch.autograd,
    torch.optim.Optimizer,
    torch.amp.GradScaler,
    torch.nn.utils,
    torch.nn.utils.clip_grad,
    torch.nn.parallel,
    torch.nn.parallel.distributed,
    builtins,
    logging.Handler,
    os,
)


class Block(torch.nn.Linear):
    pass


def state():
    return [dict(vars(owner)) for owner in OWNERS]


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("fp16_autocast", {}),
        ("selective_recompute", {"block": "Block"}),
        ("fsdp2", {"block": "Block"}),
        ("logging", {"every": 3}),
    ],
)
def test_nothing_is_left(name, settings):
    agent = SimpleNamespace(
        torch=torch, settings={"trial": {"steps": 30}}, on_call=[], on_model=[], on_step=[], losses=[], steps=0
    )
    before = state()
    undo = apply(agent, name, settings)
    model = torch.nn.Sequential(Block(4, 4), Block(4, 1))
    for act in agent.on_call:
        act(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    if name != "fsdp2":  # which needs ranks
        model(torch.ones(2, 4)).mean().backward()
        optimizer.step()
    undo()

    # Modules that torch has imported meanwhile are there, too.
    assert [{name: now[name] for name in was} for now, was in zip(state(), before, strict=True)] == before
    assert "step" not in vars(optimizer)
    assert not any("forward" in vars(module) for module in model.modules())
