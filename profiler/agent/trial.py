"""A trial: the program runs with or without a change for a number of steps and then ends by itself.

Both arms of a comparison start from the same seeds, so a program that sets none still sees the same batches.
"""

from __future__ import annotations

import atexit
import math
import os
import random
import sys
from typing import Any

from . import interventions
from .interventions._modification import Modification
from .session import Agent

# Maximum losses kept. They stay tensors until the end: reading one would make the program wait for the GPU.
MOST_LOSSES = 10_000

ENDED = 0
"""Exit status of a process that has taken its steps."""


def begin(agent: Agent, *, steps: int | None, seed: int, nudged: bool, changes: list[dict[str, Any]]) -> None:
    """Seed the program and apply the changes before it trains.

    A change that cannot be made is reported as a problem of the trial.

    Args:
        agent: The agent of this process.
        steps: The number of steps after which the process ends. None: the program trains with the changes to its own
            end, from its own seeds.
        seed: The seed.
        nudged: Whether weights are changed by a rounding error.
        changes: The changes, each as {"name": ..., "settings": {...}}.
    """
    if steps is not None:
        random.seed(seed)
        agent.torch.manual_seed(seed)
        numpy = sys.modules.get("numpy")
        if numpy is not None:
            numpy.random.seed(seed)
    for change in changes:
        try:
            undo = interventions.apply(agent, change["name"], change["settings"])
        except Exception as error:
            agent.problem("trial", error)
        else:
            agent.uninstall.append((f"trial: {change['name']}", undo))
    if steps is not None:
        if nudged:
            agent.on_model.append(lambda model: _nudge(agent.torch, model))
        _watch(agent, steps)


def _nudge(torch: Any, model: Any) -> None:
    """Change weights by a rounding error, to show how much training amplifies rounding.

    If it amplifies much, rounding alone makes losses differ as much as another change does.
    """
    for parameter in model.parameters():
        if parameter.dtype in (torch.float32, torch.float64):
            parameter.data.mul_(1.0 + torch.finfo(parameter.dtype).eps)


def _watch(agent: Agent, steps: int) -> None:
    """Keep the losses, and end the process after its last step."""
    losses = agent.losses
    steps_taken = [0]

    def backward(plain: Any, loss: Any, *args: Any, **kwargs: Any) -> Any:
        if len(losses) < MOST_LOSSES and loss.numel() == 1:
            losses.append(loss.detach())
        return plain(loss, *args, **kwargs)

    def tell() -> None:
        agent.fact("trial", {"steps": steps_taken[0], "losses": [_number(loss) for loss in losses]})

    def opened() -> None:
        if not agent.is_worker:
            tell()
            atexit.register(tell)  # runs before agent.finish closes the event writer: the program may end early

    def at_step() -> None:
        # Called before the step's own event is put, so the surplus step is not recorded.
        steps_taken[0] += 1
        if steps_taken[0] == steps + 1:
            tell()
            agent.finish()
        # One step later if there are other ranks: all of them have then reported before any exits.
        if steps_taken[0] > steps + _has_peers(agent.torch.distributed):
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(ENDED)  # skips the program's atexit handlers, such as uploads, summaries and last checkpoints

    agent.uninstall.append(("trial", Modification(agent).replace(agent.torch.Tensor, "backward", backward)))
    agent.on_open.append(opened)
    agent.on_step.append(at_step)


def _has_peers(distributed: Any) -> bool:
    return bool(distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1)


def _number(loss: Any) -> float | None:
    """Return the loss as a number; None if it is not finite, which JSON cannot hold."""
    value = float(loss)
    return value if math.isfinite(value) else None
