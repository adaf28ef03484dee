"""What is logged while training, at every k-th step only: log handlers, TensorBoard's writer, wandb.

What the program does for it beforehand - reading a loss, putting words together - stays: the advice spares more than
the trial. Warnings are written at every step, and prints are the program's output. `os.fsync` is left alone, too: a
checkpoint may be behind it, and the trial writes to a scratch view, whose disk may be another.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..importing import when_imported
from ..session import Agent
from ._expected import expect

_TENSORBOARD = "torch.utils.tensorboard.writer"
_WANDB = "wandb.sdk.wandb_run"


@dataclass(frozen=True)
class Logging:
    """Nothing is left out before the first step, or where `every` divides the number of steps taken."""

    every: int

    def apply(self, agent: Agent) -> Callable[[], None]:
        """At once for handlers; for the others, as they are imported."""
        if self.every < 2:
            raise ValueError("Every step is logged already.")
        left_out: list[bool] = []
        undo: list[Callable[[], None]] = []

        def thin(cls: Any, name: str, matters: Callable[..., bool] = lambda *args, **kwargs: False) -> None:
            undo.append(self._thin(agent, cls, name, matters, left_out))

        def tensorboard() -> None:
            writer = sys.modules[_TENSORBOARD].SummaryWriter
            for name in [name for name in vars(writer) if name.startswith("add_")]:
                thin(writer, name)

        thin(logging.Handler, "handle", lambda handler, record: record.levelno >= logging.WARNING)
        when_imported(_TENSORBOARD, tensorboard)
        when_imported(_WANDB, lambda: thin(sys.modules[_WANDB].Run, "log"))
        expect(agent, lambda: left_out, "Nothing was logged that could be left out.", by_the_end=True)

        def undo_all() -> None:
            for each in undo:
                each()

        return undo_all

    def _thin(
        self, agent: Agent, cls: Any, name: str, matters: Callable[..., bool], left_out: list[bool]
    ) -> Callable[[], None]:
        plain = getattr(cls, name)

        def thinned(*args: Any, **kwargs: Any) -> Any:
            if agent.steps % self.every == 0 or matters(*args, **kwargs):
                return plain(*args, **kwargs)
            left_out[:] = [True]
            return None

        setattr(cls, name, thinned)

        def undo() -> None:
            if getattr(cls, name) is thinned:
                setattr(cls, name, plain)

        return undo
