"""Hugging Face transformers: records what `Trainer.train` does, and tells its trackers.

Trainer(..., callbacks=[ProfileTrainCallback(out="run")])
"""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from profiler.integrations.trackers import to_mlflow, to_tensorboard, to_wandb
from profiler.session import profile

try:
    from transformers import TrainerCallback
except ImportError as error:
    raise ImportError(
        "This callback is for Hugging Face transformers, which is not installed: pip install transformers"
    ) from error


class ProfileTrainCallback(TrainerCallback):
    """Records a training, from its begin to its end. Takes the options of `profile`.

    The trainer tells its callbacks of no failure: a training that raised is recorded until it begins anew, or the
    program ends.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        self.run = profile(*args, **options)
        self._recording = ExitStack()
        self._mlflow: str | None = None
        """The run that is active as training begins: the trainer's own callback ends it before we are told."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Begin."""
        self._recording.__exit__(RuntimeError, RuntimeError("training begins anew"), None)
        self._recording.enter_context(self.run)
        active = getattr(sys.modules.get("mlflow"), "active_run", None)
        self._mlflow = run.info.run_id if active and (run := active()) else None

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """End, and tell the trackers that the trainer reports to."""
        self._recording.close()
        wandb = getattr(sys.modules.get("wandb"), "run", None)
        board = _tensorboard(args) if "tensorboard" in args.report_to else None
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


def _tensorboard(args: Any) -> str | None:
    """The folder into which the trainer's callback has just written: it may choose one by the time of day."""
    if chosen := os.environ.get("TENSORBOARD_LOGGING_DIR") or getattr(args, "logging_dir", None):
        return os.path.expanduser(chosen)
    written = list(Path(args.output_dir).glob("runs/**/events.out.tfevents.*"))
    return str(max(written, key=lambda path: path.stat().st_mtime).parent) if written else None
