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
from typing import Any

from ..importing import when_imported
from ._log_functions import LogFunctions
from ._modification import Modification, NotMade

_TENSORBOARD = "torch.utils.tensorboard.writer"
_WANDB = "wandb.sdk.wandb_run"
_TQDM = "tqdm.std"


def apply(change: Modification, every: int) -> None:
    """Let logs appear before the first step and whenever `every` divides the number of steps taken.

    Handlers and prints change at once, the others when they are imported.

    Raises:
        NotMade: `every` is less than 2.
    """
    if every < 2:
        raise NotMade("Every step is logged already.", "no-target")
    agent = change.agent
    left_out: list[bool] = []
    printed: list[bool] = []
    functions = LogFunctions(change, every, left_out)

    def thin(
        cls: Any,
        name: str,
        matters: Callable[..., bool] = lambda *args, **kwargs: False,
        counted: list[bool] = left_out,
    ) -> None:
        def thinned(plain: Any, *args: Any, **kwargs: Any) -> Any:
            functions.wrote()
            if agent.steps % every == 0 or matters(*args, **kwargs):
                return plain(*args, **kwargs)
            counted.append(True)
            return None

        change.replace(cls, name, thinned)

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
    functions.watch()
    if change.is_trial:
        thin(builtins, "print", _into_a_file, printed)
        when_imported(_TQDM, lambda: thin(sys.modules[_TQDM].tqdm, "refresh", counted=printed))
    change.expect("Nothing was logged that could be left out.", made, by_the_end=True)


def _into_a_file(*args: Any, file: Any = None, **kwargs: Any) -> bool:
    """Return whether a print goes to a file, which the program may read again."""
    return file not in (None, sys.stdout, sys.stderr)
