"""Ray Train: record every worker of a `TorchTrainer`, on all nodes, into one run.

TorchTrainer(..., run_config=RunConfig(callbacks=[ProfileTrainCallback(out="/shared/run")]))
"""

import binascii
import os
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from profiler.printable import say
from profiler.recorder.folder import store_of
from profiler.recorder.job import Job
from profiler.session import make_report, profile

try:
    from ray.train import get_context
    from ray.train.v2._internal.execution.callback import ControllerCallback, WorkerCallback
    from ray.train.v2._internal.execution.context import get_train_context
except ImportError as error:
    raise ImportError(
        "This callback is for Ray Train v2 (Ray 2.43 or newer), which is not installed: pip install 'ray[train]'"
    ) from error


class ProfileTrainCallback(WorkerCallback, ControllerCallback):
    """A callback that records each worker into its own file below `out`, and reports on all of them at the end.

    Ray copies it to the controller and to every worker. `out` is a folder that all nodes share; without a shared one,
    join the nodes' folders afterwards with `profile-train merge`. The other options are those of `profile`.
    """

    def __init__(self, out: str | os.PathLike[str], *, report: bool = True, **options: Any) -> None:
        self._out = Path(out).absolute()
        self._report = report
        self._options = options
        self._command = [*sys.argv]
        """The driver's command; a worker's command is Ray's own."""
        self._id = ""
        self._recording = ExitStack()

    def after_controller_start(self, train_run_context: Any) -> None:
        """Give this call of `fit` an ID, in the controller, before workers get their copies."""
        self._id = f"{binascii.crc32(train_run_context.run_id.encode()):08x}"

    def after_init_train_context(self) -> None:
        """Start recording, in a worker."""
        rank, host = get_context().get_world_rank(), os.uname().nodename
        names = (f"rank{rank}", *(f"rank{rank}-{number}" for number in range(2, 1000)))
        jobs = (Job(self._id, host, name, f"ray-{self._id}") for name in names)
        run = profile(self._out, report=False, **self._options)
        run.command = self._command
        # After one worker has failed, Ray restarts all of them: keep what the earlier ones recorded.
        run.job = next(job for job in jobs if not store_of(self._out, job.part).exists())
        self._recording.enter_context(run)

    def before_worker_shutdown(self) -> None:
        """Stop recording, in a worker whose training function has returned, raised, or must stop."""
        try:
            error = get_train_context().execution_context.training_thread_runner.get_error()
        except Exception:  # noqa: BLE001 - another version of Ray: the run counts as completed
            error = None
        self._recording.__exit__(type(error) if error else None, error, None)

    def after_controller_finish(self, result: Any) -> None:
        """Make the report, in the controller, after all workers have stopped."""
        if not self._report:
            return
        if self._out.is_dir():
            make_report(self._out, summary=False)
        else:
            say(
                f"There is no folder {self._out} on the node of Ray's controller. "
                "Merge the nodes' folders with `profile-train merge`."
            )
