"""Hugging Face accelerate: a tracker that records from `init_trackers` to `end_training`, and tells the others.

tracker = ProfileTrainTracker(out="run")
accelerator = Accelerator(log_with=[tracker, "tensorboard"], project_dir=".")
accelerator.init_trackers("demo")
for step, batch in enumerate(loader):
    ...
    if told := tracker.newest(step):
        accelerator.log(told, step)
accelerator.log(tracker.summary())
accelerator.end_training()
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from profiler.integrations.live import EVERY, Live
from profiler.integrations.trackers import ADVICE, advice, figures
from profiler.session import profile

try:
    from accelerate import PartialState
    from accelerate.tracking import GeneralTracker
except ImportError as error:
    raise ImportError(
        "This tracker is for Hugging Face accelerate, which is not installed: pip install accelerate"
    ) from error


class ProfileTrainTracker(GeneralTracker):
    """Records a training. Takes the options of `profile`, and how many steps lie between two answers of `newest`; None:
    it has none."""

    name = "profile_train"
    requires_logging_directory = False
    main_process_only = False
    """The recording itself knows which ranks it is of."""

    def __init__(self, *args: Any, every: int | None = EVERY, **options: Any) -> None:
        super().__init__()
        self.run = profile(*args, **options)
        self._live = Live(self.run, every)
        self._recording = ExitStack()

    @property
    def tracker(self) -> profile:
        """What `accelerator.get_tracker("profile_train", unwrap=True)` gives."""
        return self.run

    def start(self) -> None:
        """Begin."""
        self._recording.enter_context(self.run)
        self._recording.enter_context(self._live)

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        """The program's hyperparameters are the other trackers' to keep."""

    def log(self, values: dict[str, Any], step: int | None = None, **_: Any) -> None:
        """The program's metrics, too."""

    def finish(self) -> None:
        """End, if that has not happened yet."""
        self._recording.close()

    def newest(self, step: int) -> dict[str, float]:
        """What the other trackers are to be told of the steps since the last time: mostly nothing. Call it as each step
        ends."""
        return self._live.newest(step) if PartialState().is_main_process else {}

    def summary(self) -> dict[str, float | str]:
        """End, and give back what the other trackers are to be told: step time, phases and the first advice."""
        self.finish()
        result = self.run.result() if PartialState().is_main_process else None
        return {} if result is None else {**figures(result), ADVICE: advice(result)}
