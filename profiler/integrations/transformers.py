"""Hugging Face transformers: records what `Trainer.train` does, and tells its trackers, while it trains and at the end.

Trainer(..., callbacks=[ProfileTrainCallback(out="run")])
"""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from profiler.integrations.live import EVERY, Live
from profiler.integrations.trackers import to_mlflow, to_tensorboard, to_wandb
from profiler.session import profile

try:
    from transformers import TrainerCallback
except ImportError as error:
    raise ImportError(
        "This callback is for Hugging Face transformers, which is not installed: pip install transformers"
    ) from error


LIVE = "profile_train"
"""The folder, in the trainer's own of TensorBoard, of what is told while training goes on: readers follow one file of a
folder, and the trainer's is not to be had."""


class ProfileTrainCallback(TrainerCallback):
    """Records a training, from its begin to its end. Takes the options of `profile`; trackers are told every so many
    steps (None: only at the end).

    The trainer tells its callbacks of no failure: a training that raised is recorded until it begins anew, or the
    program ends.
    """

    def __init__(self, *args: Any, every: int | None = EVERY, **options: Any) -> None:
        self.run = profile(*args, **options)
        self._every = every
        self._live = Live(self.run, every)
        self._recording = ExitStack()
        self._writer: Any = None
        """Of TensorBoard, while training goes on."""
        self._mlflow: str | None = None
        """The run that is active as training begins: the trainer's own callback ends it before we are told."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Begin."""
        self._recording.__exit__(RuntimeError, RuntimeError("training begins anew"), None)
        self._writer = None
        self._recording.enter_context(self.run)
        self._live = self._recording.enter_context(Live(self.run, self._every))
        active = getattr(sys.modules.get("mlflow"), "active_run", None)
        self._mlflow = run.info.run_id if active and (run := active()) else None

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Tell the trackers of the newest steps."""
        if state.is_world_process_zero:
            self._live.tell(state.global_step, lambda told, step: self._tell(args, told, step))

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """End, and tell the trackers that the trainer reports to."""
        self._recording.close()
        self._writer = None
        wandb = _wandb()
        board = _tensorboard(args)
        if not state.is_world_process_zero or not (wandb or board or self._mlflow):
            return
        result, step = self.run.result(), state.global_step
        if board:
            from torch.utils.tensorboard import SummaryWriter

            with SummaryWriter(board) as writer:
                to_tensorboard(result, writer, step)
        if wandb:
            to_wandb(result, wandb)
        if self._mlflow:
            to_mlflow(result, self._mlflow, step)

    def _tell(self, args: Any, told: dict[str, float], step: int) -> None:
        if self._writer is None and (board := _tensorboard(args)):
            from torch.utils.tensorboard import SummaryWriter

            self._writer = self._recording.enter_context(SummaryWriter(os.path.join(board, LIVE)))
        if self._writer is not None:
            for name, value in told.items():
                self._writer.add_scalar(name, value, step)
        if wandb := _wandb():
            wandb.log({**told, "train/global_step": step})  # which is what the trainer's own curves are drawn over
        if self._mlflow:
            from mlflow import log_metrics

            log_metrics(told, step=step, synchronous=False, run_id=self._mlflow)


def _wandb() -> Any:
    """The run of wandb, if there is one."""
    return getattr(sys.modules.get("wandb"), "run", None)


def _tensorboard(args: Any) -> str | None:
    """The folder into which the trainer's callback has just written, if it does: it may choose one by the time of
    day."""
    if "tensorboard" not in args.report_to:
        return None
    if chosen := os.environ.get("TENSORBOARD_LOGGING_DIR") or getattr(args, "logging_dir", None):
        return os.path.expanduser(chosen)
    found = Path(args.output_dir).glob("runs/**/events.out.tfevents.*")
    written = [path for path in found if path.parent.name != LIVE]
    return str(max(written, key=lambda path: path.stat().st_mtime).parent) if written else None
