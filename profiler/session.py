"""The context manager: the agent in this process, a recorder in another, a report at the end."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any

from profiler import launch, ours
from profiler.child import python, set_variables
from profiler.errors import ProfilerError
from profiler.options import RecordingOptions
from profiler.printable import say
from profiler.recorder import folder as run_folder
from profiler.recorder.job import Job

_INJECTED = "_profile_train_agent.start"
_RECORD = "from profiler.recorder.alongside import main; main(sys.argv[1:])"

# Maximum seconds to wait for the recorder, which reads the last half second and parses the windows; a hung disk must
# not block the program.
PATIENCE = 120.0


class profile:
    """Record the training inside the `with` block, and write a report into the run folder.

    Args:
        out: The run folder (default: profile-train-runs/<time>-<script>).
        report: Whether to write a report at the end.
        budget: Share of run time that profiler windows may cost.
        rate: Samples per second.
        windows: Whether to take torch.profiler windows at all.
        stacks: Whether to sample Python stacks from outside.
        name: Name of the block if it is a region.

    Inside `profile-train`, and inside another `profile`, the block is a region of the run that is being recorded. With
    several ranks, local rank 0 of each node is recorded; `profile-train torchrun ...` records all of them. The block's
    own exceptions pass through. A block that is still open when the program ends, ends with it.

    Raises:
        ProfilerError: before the block, if it cannot be recorded.
    """

    def __init__(
        self,
        out: str | os.PathLike[str] | None = None,
        *,
        report: bool = True,
        budget: float = 0.01,
        rate: float = 10.0,
        windows: bool = True,
        stacks: bool = True,
        name: str = "profile",
    ) -> None:
        self.out = None if out is None else Path(out)
        self.report = report
        self.options = RecordingOptions(budget=budget, rate=rate, windows=windows, stacks=stacks)
        self.name = name
        self.summary = True
        """Whether to print what was found, with the report."""
        self.job: Job | None = None
        """The job whose recorders share the run folder. Every rank is then recorded, each by its own block."""
        self.command = sys.argv
        """The command that the report names."""
        self.folder: Path | None = None
        """The run folder; None in a region of another run."""
        self._earlier: Path | None = None
        self._recorder: subprocess.Popen[bytes] | None = None
        self._pid = 0
        """PID of the process that owns the block; a forked child has a copy of the object, too."""
        self._agent: Any = None
        self._begin = 0
        self._variables: Mapping[str, str | None] = {}
        """The environment variables as they were before the block."""

    def __repr__(self) -> str:
        return f"profile(out={str(self.folder)!r})" if self.folder else f"profile(name={self.name!r})"

    @property
    def report_path(self) -> Path | None:
        """Return the path of report.html, once the block has ended."""
        return None if self.folder is None else ours.where(self.folder, "report.html")

    def __enter__(self) -> profile:
        self._begin = time.perf_counter_ns()
        # Under profile-train, there is no agent before torch is imported, only its variable in the environment.
        outermost = _running() is None and launch.VARIABLE not in os.environ
        if outermost:
            from profiler.agent import ranks

            if self.job is not None or ranks.numbers()["local_rank"] == 0:
                self._start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._recorder is None:
            _end_region(self.name, self._begin)
            return
        failed = error is not None and not (isinstance(error, SystemExit) and not error.code)
        self._end(b"failed" if failed else b"completed")

    @property
    def recorded(self) -> Path | None:
        """Return the folder of the recording that covers this process.

        It is the block's own folder, or that of an enclosing `profile-train`.
        """
        outer_folder = json.loads(os.environ.get(launch.VARIABLE, "{}")).get("folder")
        return self.folder or (Path(outer_folder) if outer_folder else None)

    def result(self) -> dict[str, Any] | None:
        """Return the content of result.json (docs/result.schema.json), or None.

        For a run that is still being recorded, e.g. within `profile-train`, return the result so far. None if nothing
        is recorded in this process, or no result is available.
        """
        folder = self.recorded
        if folder is None:
            return None
        if path := ours.listed(folder, "result.json"):
            return dict(json.loads(path.read_text()))
        process = _advise("report", "--json", folder, stdout=subprocess.PIPE)
        return None if process.returncode else dict(json.loads(process.stdout))

    def _start(self) -> None:
        from profiler.agent import yama
        from profiler.agent.redact import redact_command  # imported only now: it compiles its patterns

        script = Path(self.command[0]).name if self.command and self.command[0] not in ("", "-c") else "python"
        script = "notebook" if script == "ipykernel_launcher.py" else script
        seat, rings, settings = launch.begin(self.out, script, self.job, self.options)
        self.folder, self._earlier = seat.folder.absolute(), seat.earlier
        if seat.notice:
            say(seat.notice)
        origin = time.perf_counter_ns()
        options, job = json.dumps(asdict(self.options)), self.job.id if self.job else ""
        arguments = (self.folder, rings, os.getpid(), origin, options, seat.part, job, *redact_command(self.command))
        try:
            variables = launch.variables(settings)
            self._recorder = subprocess.Popen(
                [*python(_RECORD), *map(str, arguments)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C ends the program; the recorder sees that and finishes
            )
        except (OSError, ProfilerError) as error:
            run_folder.leave(seat, rings)
            if isinstance(error, ProfilerError):
                raise
            raise ProfilerError(f"The recorder could not be started: {error}.", "End other processes.") from error
        if self.options.stacks:
            yama.allow(self._recorder.pid)
        self._variables = set_variables(variables)  # for spawned workers and subprocesses, too
        self._pid = os.getpid()
        atexit.register(self._end_with_the_program)
        from profiler.agent import importing, start

        self._agent = start
        importing.wait_for_torch(variables[launch.VARIABLE])

    def _end_with_the_program(self) -> None:
        if os.getpid() == self._pid:
            self._end(b"over")  # the agent reports the outcome

    def _end(self, outcome: bytes) -> None:
        atexit.unregister(self._end_with_the_program)
        self._agent.end()
        set_variables(self._variables)
        recorder, self._recorder = self._recorder, None
        assert recorder is not None
        assert self.folder is not None
        assert recorder.stdin is not None
        with contextlib.suppress(OSError):
            recorder.stdin.write(outcome)
            recorder.stdin.close()
        try:
            recorder.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            say(f"The recording is still being written into {self.folder}.")
            return
        if notice := run_folder.settle(self._earlier, completed=outcome == b"completed"):
            say(notice)
        if self.report:
            make_report(self.folder, summary=self.summary)


def make_report(folder: Path, *, summary: bool) -> None:
    """Write the report of a run folder, in a separate process."""
    _advise("report", "--summary" if summary else "--no-summary", folder)


def _advise(*words: object, stdout: int | None = None) -> subprocess.CompletedProcess[bytes]:
    """Run profile-train in a separate process, so that the program never loads the advisor."""
    return subprocess.run(
        [*python("from advisor.cli import main; sys.exit(main())"), *map(str, words)],
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        check=False,
    )


def _running() -> Any:
    """Return the agent's module if an agent runs in this process, else None."""
    for name in (_INJECTED, "profiler.agent.start"):
        module = sys.modules.get(name)
        if module is not None and module.active is not None:
            return module
    return None


def step() -> None:
    """Mark the end of a training step, in loops without a torch optimizer. Do nothing if nothing is recorded."""
    agent = _running()
    if agent is not None:
        agent.step()


@contextlib.contextmanager
def region(name: str) -> Iterator[None]:
    """Name a part of the program in the run that is being recorded."""
    begin = time.perf_counter_ns()
    try:
        yield
    finally:
        _end_region(name, begin)


def _end_region(name: str, begin: int) -> None:
    agent = _running()
    if agent is not None:
        agent.region(name, begin, time.perf_counter_ns())
