"""Hugging Face accelerate: a tracker that records from `init_trackers` to `end_training`.

It also supplies figures for the other trackers:

    tracker = ProfileTrainTracker(out="run")
    accelerator = Accelerator(log_with=[tracker, "tensorboard"], project_dir=".")
    accelerator.init_trackers("demo")
    for step, batch in enumerate(loader):
        ...
        if values := tracker.newest(step):
            accelerator.log(values, step)
    accelerator.log(tracker.summary())
    accelerator.end_training()
"""

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
    """A tracker that records a training run.

    It takes the options of `profile`. `every` is the number of steps between two results of `newest`; None means that
    there are none.
    """

    name = "profile_train"
    requires_logging_directory = False
    main_process_only = False
    """False, because the recording itself knows which ranks it covers."""

    def __init__(self, *args: Any, every: int | None = EVERY, **options: Any) -> None:
        super().__init__()
        self.run = profile(*args, **options)
        self._live = Live(self.run, every)
        self._recording = ExitStack()

    @property
    def tracker(self) -> profile:
        """Return the value of `accelerator.get_tracker("profile_train", unwrap=True)`."""
        return self.run

    def start(self) -> None:
        """Start recording, when the trackers are initialized."""
        self._recording.enter_context(self.run)
        self._recording.enter_context(self._live)

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        """Do nothing: the other trackers keep the program's hyperparameters."""

    def log(self, values: dict[str, Any], step: int | None = None, **_: Any) -> None:
        """Do nothing: the other trackers keep the program's metrics."""

    def finish(self) -> None:
        """Stop recording, if it has not stopped yet."""
        self._recording.close()

    def newest(self, step: int) -> dict[str, float]:
        """Return the figures of the newest steps for the other trackers; empty for most steps.

        Call it at the end of each step.
        """
        return self._live.newest(step) if PartialState().is_main_process else {}

    def summary(self) -> dict[str, float | str]:
        """Stop recording and return the final figures for the other trackers.

        These are step time, phases and the first advice.
        """
        self.finish()
        result = self.run.result() if PartialState().is_main_process else None
        return {} if result is None else {**figures(result), ADVICE: advice(result)}
