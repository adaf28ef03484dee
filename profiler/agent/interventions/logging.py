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
import os
import sys
from collections.abc import Callable
from types import CodeType
from typing import Any

from ..importing import when_imported
from ..stack import is_users
from ._modification import Modification, NotMade

_TENSORBOARD = "torch.utils.tensorboard.writer"
_WANDB = "wandb.sdk.wandb_run"
_TQDM = "tqdm.std"

# Steps to watch, and calls of a function that must have returned None: all within warm-up.
WATCHED = 5
CALLS = 2


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
    skipped_prints: list[bool] = []
    functions = _LogFunctions(change, every, left_out)

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
        # An occasional line costs nothing; the cost is then elsewhere.
        return bool(left_out) or len(skipped_prints) >= agent.steps / 4

    thin(logging.Handler, "handle", lambda handler, record: record.levelno >= logging.WARNING)
    when_imported(_TENSORBOARD, tensorboard)
    when_imported(_WANDB, lambda: thin(sys.modules[_WANDB].Run, "log"))
    functions.watch()
    if change.is_trial:
        thin(builtins, "print", _into_a_file, skipped_prints)
        when_imported(_TQDM, lambda: thin(sys.modules[_TQDM].tqdm, "refresh", counted=skipped_prints))
    change.expect("No log output could be skipped.", made, by_the_end=True)


def _into_a_file(*args: Any, file: Any = None, **kwargs: Any) -> bool:
    """Return whether a print goes to a file, which the program may read again."""
    return file not in (None, sys.stdout, sys.stderr)


class _LogFunctions:
    """The logging functions that the training loop calls: found while they write, then called at every k-th step only.

    `left_out` grows with each call that is skipped.
    """

    def __init__(self, change: Modification, every: int, left_out: list[bool]) -> None:
        self._change = change
        self._agent = change.agent
        self._every = every
        self._left_out = left_out
        self._loop: set[CodeType] = set()
        """The training code: code seen on the stack of a backward pass or an optimizer step."""
        self._writers: dict[CodeType, tuple[set[int], dict[str, Any]]] = {}
        """The steps at which code called by the loop wrote, and that code's globals, by code object."""
        self._synced: set[int] = set()
        """Steps after which the loop itself called os.fsync."""
        self._stop: list[Callable[[], object]] = []

    def watch(self) -> None:
        """Watch the first steps, and then replace the functions that write at every step."""
        from torch.optim.optimizer import register_optimizer_step_post_hook  # type: ignore[import-not-found,unused-ignore]

        def backward(plain: Any, *args: Any, **kwargs: Any) -> Any:
            self._trains()
            return plain(*args, **kwargs)

        def fsync(plain: Any, *args: Any, **kwargs: Any) -> Any:
            if self.wrote():
                self._synced.add(self._agent.steps)
            return plain(*args, **kwargs)

        stop = register_optimizer_step_post_hook(lambda *_: self._trains()).remove
        self._change.undoing.append(stop)
        self._stop = [
            stop,
            self._change.replace(self._change.torch.autograd, "backward", backward),
            self._change.replace(os, "fsync", fsync),
        ]
        self._agent.on_step.append(self._at_step)

    def wrote(self) -> bool:
        """Record that something is being written; return whether the loop itself writes it."""
        if not self._stop:
            return False
        frame: Any = sys._getframe(1)
        callee = None
        while frame is not None and frame.f_code not in self._loop:
            if is_users(frame.f_code.co_filename):
                callee = frame
            frame = frame.f_back
        if frame is None:  # another thread, or before there was a loop
            return False
        if callee is not None:
            self._writers.setdefault(callee.f_code, (set(), callee.f_globals))[0].add(self._agent.steps)
        return callee is None

    def _trains(self) -> None:
        frame: Any = sys._getframe(1)
        while frame is not None:
            if is_users(frame.f_code.co_filename):
                self._loop.add(frame.f_code)
            frame = frame.f_back

    def _at_step(self) -> None:
        if self._agent.steps < WATCHED:
            return
        self._agent.on_step.remove(self._at_step)
        for stop in self._stop:
            stop()
        self._stop = []
        if len(self._synced) >= WATCHED - 2 and self._change.is_trial:
            self._change.fail("The training loop itself calls `os.fsync` at every step.")
        # Writing in the first step came before the loop was known, and writing in the last step is yet to come.
        writers = [(code, names) for code, (steps, names) in self._writers.items() if len(steps) >= WATCHED - 2]
        for code, names in writers:
            if code in self._loop:
                continue
            if self._change.is_trial:
                for owner in _owners(code, names):
                    self._change.replace(owner, code.co_name, self._gate())
            else:  # it may write something that is needed later
                message = f"{code.co_name} writes at every step and was not changed: make it log less often."
                self._agent.problem("logging", RuntimeError(message))

    def _gate(self) -> Callable[..., Any]:
        returned_none: list[bool] = []
        """For each call, whether it returned None."""

        def gate(plain: Any, *args: Any, **kwargs: Any) -> Any:
            if len(returned_none) >= CALLS and all(returned_none) and self._agent.steps % self._every:
                self._left_out.append(True)
                return None
            result = plain(*args, **kwargs)
            if len(returned_none) < CALLS or result is not None:
                returned_none.append(result is None)
            return result

        return gate


def _owners(code: CodeType, names: dict[str, Any]) -> list[Any]:
    """Return the objects that hold the function under its name: its module, or a class in that module."""
    module = sys.modules.get(names.get("__name__", ""))
    owners = [module, *(value for value in names.values() if isinstance(value, type))]
    return [
        owner
        for owner in owners
        if owner is not None and getattr(vars(owner).get(code.co_name), "__code__", None) is code
    ]
