"""Lightning: record `Trainer.fit` and report to the trainer's loggers, during training and at the end.

Trainer(callbacks=[ProfileTrainCallback(out="run")])
"""

import os
from contextlib import ExitStack
from typing import Any

from profiler.integrations.live import EVERY, Live
from profiler.integrations.trackers import ADVICE, advice, figures
from profiler.session import profile

try:
    from lightning.pytorch import Callback
except ImportError:
    try:
        from pytorch_lightning import Callback
    except ImportError as error:
        raise ImportError("This callback is for Lightning, which is not installed: pip install lightning") from error


class ProfileTrainCallback(Callback):
    """A callback that records a fit, from before optimizers and loaders are made to its end.

    It takes the options of `profile`. `every` is the number of steps between two reports to the loggers; None means
    only at the end.
    """

    def __init__(self, *args: Any, every: int | None = EVERY, **options: Any) -> None:
        self.run = profile(*args, **options)
        self._live = Live(self.run, every)
        self._recording = ExitStack()

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Start recording a fit, before its loaders are made."""
        # With forked processes, each of them would consider itself the first.
        if stage == "fit" and trainer.local_rank == int(os.environ.get("LOCAL_RANK", "0")):
            self._recording.enter_context(self.run)
            self._recording.enter_context(self._live)

    def on_train_batch_end(self, trainer: Any, *_: Any, **__: Any) -> None:
        """Report the newest steps to the loggers."""
        if trainer.is_global_zero and trainer.loggers:
            self._live.tell(trainer.global_step, lambda values, step: _log(trainer.loggers, values, step))

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Stop recording and report to the loggers, which are finalized only after this."""
        if stage == "fit":
            self._recording.close()
            if trainer.is_global_zero and trainer.loggers:
                self._tell(trainer.loggers, trainer.global_step)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Stop recording a fit that failed or was interrupted."""
        self._recording.__exit__(type(exception), exception, exception.__traceback__)

    def _tell(self, loggers: list[Any], step: int) -> None:
        result = self.run.result()
        if result is None:
            return
        for logger in loggers:
            logger.log_metrics(figures(result), step)
            experiment = logger.experiment
            if hasattr(experiment, "add_text"):  # TensorBoard
                experiment.add_text(ADVICE, advice(result), step)
            elif hasattr(experiment, "summary"):  # wandb
                experiment.summary[ADVICE] = advice(result)
            elif hasattr(experiment, "set_tag"):  # mlflow
                experiment.set_tag(logger.run_id, ADVICE, advice(result))


def _log(loggers: list[Any], values: dict[str, float], step: int) -> None:
    for logger in loggers:
        logger.log_metrics(values, step)
