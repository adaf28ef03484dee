"""Hugging Face transformers: record `Trainer.train` and report to its trackers.

Trainer(..., callbacks=[ProfileTrainCallback(out="run")])
"""

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
"""Subfolder of the trainer's TensorBoard folder for figures reported during training.

TensorBoard follows one file per folder, and the trainer's own file cannot be accessed.
"""


class ProfileTrainCallback(TrainerCallback):
    """A callback that records a training run from start to end.

    It takes the options of `profile`. `every` is the number of steps between two reports to the trackers; None means
    only at the end.

    The trainer does not notify its callbacks of a failure. A training run that raised is recorded until training begins
    again or the program ends.
    """

    def __init__(self, *args: Any, every: int | None = EVERY, **options: Any) -> None:
        self.run = profile(*args, **options)
        self._live = Live(self.run, every)
        self._recording = ExitStack()
        self._writer: Any = None
        """TensorBoard's writer during training."""
        self._mlflow: str | None = None
        """ID of the mlflow run active when training begins.

        The trainer's own callback ends that run before this one is called.
        """

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Start recording; end the recording of a training run that raised."""
        self._recording.__exit__(RuntimeError, RuntimeError("training begins again"), None)
        self._writer = None
        self._recording.enter_context(self.run)
        self._recording.enter_context(self._live)
        active = getattr(sys.modules.get("mlflow"), "active_run", None)
        self._mlflow = run.info.run_id if active and (run := active()) else None

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Report the newest steps to the trackers."""
        if state.is_world_process_zero:
            self._live.tell(state.global_step, lambda values, step: self._tell(args, values, step))

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Stop recording and report to the trackers that the trainer reports to."""
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

    def _tell(self, args: Any, values: dict[str, float], step: int) -> None:
        if self._writer is None and (board := _tensorboard(args)):
            from torch.utils.tensorboard import SummaryWriter

            self._writer = self._recording.enter_context(SummaryWriter(os.path.join(board, LIVE)))
        if self._writer is not None:
            for name, value in values.items():
                self._writer.add_scalar(name, value, step)
        if wandb := _wandb():
            wandb.log({**values, "train/global_step": step})  # the x-axis of the trainer's own curves
        if self._mlflow:
            from mlflow import log_metrics

            log_metrics(values, step=step, synchronous=False, run_id=self._mlflow)


def _wandb() -> Any:
    """Return the wandb run, if there is one."""
    return getattr(sys.modules.get("wandb"), "run", None)


def _tensorboard(args: Any) -> str | None:
    """Return the TensorBoard folder of the trainer; None if it has none.

    The trainer may name the folder by the time of day, so the one written last is taken.
    """
    if "tensorboard" not in args.report_to:
        return None
    if folder := os.environ.get("TENSORBOARD_LOGGING_DIR") or getattr(args, "logging_dir", None):
        return os.path.expanduser(folder)
    matches = Path(args.output_dir).glob("runs/**/events.out.tfevents.*")
    event_files = [path for path in matches if path.parent.name != LIVE]
    return str(max(event_files, key=lambda path: path.stat().st_mtime).parent) if event_files else None
