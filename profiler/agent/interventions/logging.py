"""Log at every k-th step only: log handlers, TensorBoard's writer and wandb.

In a trial, whose output nobody reads, this also covers prints, progress bars, and functions of the program that write
at every step. Such a function is called by the training loop, writes whenever it is called, and returns nothing;
anything it computes for its log is skipped with it. If you train to the end with this change, these functions are
reported instead. Work that the loop itself does, such as reading a loss or formatting a message, stays: there the
advice saves more than the trial shows. Warnings are written at every step. `os.fsync` is left alone, because it may
belong to a checkpoint; if the loop itself calls it at every step, the trial fails.
"""

import builtins
import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..importing import when_imported
from ..patching import each_of, patch
from ..session import Agent
from ._expected import NotMade, expect
from ._log_functions import LogFunctions, is_trial

_TENSORBOARD = "torch.utils.tensorboard.writer"
_WANDB = "wandb.sdk.wandb_run"
_TQDM = "tqdm.std"


@dataclass(frozen=True)
class Logging:
    """The logging change. Logs appear before the first step and whenever `every` divides the number of steps taken."""

    every: int

    def apply(self, agent: Agent) -> Callable[[], None]:
        """Change handlers and prints at once, the others when they are imported.

        Raises:
            NotMade: `every` is less than 2.
        """
        if self.every < 2:
            raise NotMade("Every step is logged already.", "no-target")
        left_out: list[bool] = []
        printed: list[bool] = []
        undo: list[Callable[[], None]] = []
        functions = LogFunctions(agent, self.every, left_out)
        wrote = functions.wrote

        def thin(
            cls: Any,
            name: str,
            matters: Callable[..., bool] = lambda *args, **kwargs: False,
            counted: list[bool] = left_out,
        ) -> None:
            plain = getattr(cls, name)

            def thinned(*args: Any, **kwargs: Any) -> Any:
                wrote()
                if agent.steps % self.every == 0 or matters(*args, **kwargs):
                    return plain(*args, **kwargs)
                counted.append(True)
                return None

            undo.append(patch(name, plain, thinned, cls))

        def tensorboard() -> None:
            writer = sys.modules[_TENSORBOARD].SummaryWriter
            for name in [name for name in vars(writer) if name.startswith("add_")]:
                thin(writer, name)

        def made() -> bool:
            # A line now and then costs nothing: what does is then elsewhere.
            return bool(left_out) or len(printed) >= agent.steps / 4

        thin(logging.Handler, "handle", lambda handler, record: record.levelno >= logging.WARNING)
        when_imported(_TENSORBOARD, tensorboard)
        when_imported(_WANDB, lambda: thin(sys.modules[_WANDB].Run, "log"))
        undo.append(functions.watch())
        if is_trial(agent):
            thin(builtins, "print", _into_a_file, printed)
            when_imported(_TQDM, lambda: thin(sys.modules[_TQDM].tqdm, "refresh", counted=printed))
        expect(agent, made, "Nothing was logged that could be left out.", by_the_end=True)
        return each_of(undo)


def _into_a_file(*args: Any, file: Any = None, **kwargs: Any) -> bool:
    """Return whether a print goes to a file, which the program may read again."""
    return file not in (None, sys.stdout, sys.stderr)
