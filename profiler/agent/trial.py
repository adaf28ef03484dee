"""A trial: the program runs with or without a change for a number of steps and then ends by itself.

Both arms of a comparison start from the same seeds, so a program that sets none still sees the same batches.
"""

from __future__ import annotations

import atexit
import math
import os
import random
import sys
from collections.abc import Callable
from typing import Any

from . import interventions
from .interventions._modification import Modification
from .session import Agent

# A loss is kept as a tensor until the end: to read it would make the program wait for the GPU.
MOST_LOSSES = 10_000

ENDED = 0
"""Exit status of a process that has taken its steps."""


class Trial:
    """A trial in this process.

    `settings` holds

    - `steps`: the steps after which the process ends, or None if the program is to train with the changes from its own
      seeds to its own end;
    - `seed`;
    - `nudged`: whether weights are changed by a rounding error;
    - `changes`: a list of {"name": ..., "settings": {...}}.
    """

    def __init__(self, agent: Agent, settings: dict[str, Any]) -> None:
        self._agent = agent
        self._steps = settings["steps"]
        self._seed = int(settings["seed"])
        self._nudged = bool(settings["nudged"])
        self._changes = settings["changes"]
        self._losses = agent.losses
        self._taken = 0

    def begin(self) -> None:
        """Seed the program and apply the changes before it trains.

        A change that cannot be made is reported as a problem of the trial.
        """
        agent = self._agent
        if self._steps is None:
            self._change()
            return
        random.seed(self._seed)
        agent.torch.manual_seed(self._seed)
        numpy = sys.modules.get("numpy")
        if numpy is not None:
            numpy.random.seed(self._seed)
        self._change()
        if self._nudged:
            agent.on_model.append(self._nudge)
        agent.uninstall.append(("trial", self._watch_losses()))
        agent.on_open.append(self._opened)
        agent.on_step.append(self._at_step)

    def _change(self) -> None:
        agent = self._agent
        for change in self._changes:
            try:
                undo = interventions.apply(agent, change["name"], change["settings"])
            except Exception as error:
                agent.problem("trial", error)
            else:
                agent.uninstall.append((f"trial: {change['name']}", undo))

    def _opened(self) -> None:
        if not self._agent.is_worker:
            self._tell()
            atexit.register(self._tell)  # before the agent's own, which closes: the program may end sooner than planned

    def _nudge(self, model: Any) -> None:
        """Change weights by a rounding error, to show how much training amplifies rounding.

        If it amplifies much, rounding alone makes losses differ as much as another change does.
        """
        torch = self._agent.torch
        for parameter in model.parameters():
            if parameter.dtype in (torch.float32, torch.float64):
                parameter.data.mul_(1.0 + torch.finfo(parameter.dtype).eps)

    def _at_step(self) -> None:
        """Count a step and end the process after the last one.

        It is called before the step's own event is put, so the surplus step is not recorded.
        """
        self._taken += 1
        if self._taken == self._steps + 1:
            self._tell()
            self._agent.finish()
        # One step later where there are other ranks: all of them have reported before any is gone.
        if self._taken > self._steps + self._has_peers():
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(ENDED)  # no atexit of the program's: uploads, summaries and last checkpoints are none of a trial's

    def _has_peers(self) -> bool:
        distributed = self._agent.torch.distributed
        return bool(distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1)

    def _tell(self) -> None:
        self._agent.fact("trial", {"steps": self._taken, "losses": [_number(loss) for loss in self._losses]})

    def _watch_losses(self) -> Callable[[], None]:
        losses = self._losses

        def backward(plain: Any, loss: Any, *args: Any, **kwargs: Any) -> Any:
            if len(losses) < MOST_LOSSES and loss.numel() == 1:
                losses.append(loss.detach())
            return plain(loss, *args, **kwargs)

        return Modification(self._agent).replace(self._agent.torch.Tensor, "backward", backward)


def _number(loss: Any) -> float | None:
    """Return the loss as a number; None if it is not finite, which JSON cannot hold."""
    value = float(loss)
    return value if math.isfinite(value) else None
