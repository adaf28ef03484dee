"""The recording: drain the rings, sample GPUs and host, write the store.

By default this happens ten times per second, from outside the program.
"""

from __future__ import annotations

import contextlib
import os
import platform
import socket
import time
import uuid
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from profiler import __version__
from profiler.agent.redact import known_secrets
from profiler.errors import ProfilerError
from profiler.options import RecordingOptions
from profiler.recorder import folder as run_folder
from profiler.recorder.drain import Drain, EventSource
from profiler.recorder.ending import Asked, code, sentence
from profiler.recorder.gpu import GpuSampler
from profiler.recorder.host import HostSampler, Scheduling, machine
from profiler.recorder.origin import origin as origin_of
from profiler.schema import Fact, Outcome, Problem, Run, Step
from profiler.store import Tables, Writer, find, read

if TYPE_CHECKING:
    from profiler.recorder.stacks.sampler import StackSampler

# Seconds between two searches for new processes: a search lists a directory, and new processes are rare.
LOOK_EVERY = 0.5

# Seconds between two writes of whole-run totals: quantiles matter only once steps have been merged, which takes longer.
SKETCH_EVERY = 10.0

# Seconds between two polls, beyond the sample interval, that count as a gap: twenty samples at the default rate.
SILENCE = 2.0

# Seconds between two commits: if this process is killed, uncommitted data is still in the rings.
COMMIT_EVERY = 0.5


def new_run(
    command: tuple[str, ...], origin: int, budget: float, job: str | None = None, cwd: str | None = None
) -> Run:
    """Return the row of a recording that begins now on this machine; `cwd` is the program's, if not ours."""
    hardware, cwd = machine(), cwd or os.getcwd()
    return Run(
        id=uuid.uuid4().hex,
        command=command,
        cwd=cwd,
        host=socket.gethostname(),
        started_at=time.time() - (time.perf_counter_ns() - origin) / 1e9,
        **asdict(hardware),
        python=platform.python_version(),
        version=__version__,
        budget=budget,
        job=job,
        **origin_of(command, cwd, os.environ)._asdict(),
    )


def finish_orphan(folder: Path) -> str | None:
    """Finish the recording of a recorder that was killed on this machine, from the program's rings.

    Returns a note for the user, or None if there was nothing to do. If the program is still training, everything is
    read but nothing is closed.
    """
    with run_folder.exclusive(folder):
        messages = [_finish(folder, note) for note in run_folder.notes(folder)]
    return " ".join(dict.fromkeys(message for message in messages if message)) or None


def _finish(folder: Path, note: run_folder.RecordingNote) -> str | None:
    if run_folder.is_copy(folder, note):
        return "This folder was copied during the recording: it contains only the data written until then."
    if run_folder.is_live(folder, note):
        return None
    if note.is_elsewhere:
        return (
            f"The recorder of {note.part or 'this run'} ended early on another machine: data that it had not read yet "
            "can be read only there, with this command."
        )
    rings = Path(note.rings)
    stored = _stored_here(folder, note.part)
    if stored is None or not run_folder.are_rings(rings, folder):
        return None
    run = stored.runs[-1]
    try:
        options = RecordingOptions(stacks=False)
        recorder = Recorder(
            folder, rings, run, note.program, options, origin=note.origin, stored=stored, part=note.part
        )
        if run_folder.is_alive(note.program, note.program_started):
            recorder.suspend()
            return "The recorder of this run ended early; the program is still training. This is the data up to now."
        recorder.finish(None)
    except ProfilerError as error:
        return f"The recorder of this run ended early; the program's remaining events are still in {rings}: {error}"
    return "The recorder of this run ended early: the rest was read from the program's rings."


def _stored_here(folder: Path, part: str) -> Tables | None:
    """Return the tables that a recorder on this machine has stored, or None."""
    for path in [run_folder.store_of(folder, part)] if part else find(folder):
        with contextlib.suppress(ProfilerError):
            node = read(path)
            if any(run.host == socket.gethostname() for run in node.runs):
                return node
    return None


class Recorder:
    """A node's recording into `folder`; call `poll` often, it does the work that is due."""

    def __init__(
        self,
        folder: Path,
        rings: Path,
        run: Run,
        program: int,
        options: RecordingOptions,
        *,
        origin: int,
        stored: Tables | None = None,
        part: str = "",
    ) -> None:
        """Open the store and start sampling.

        Args:
            folder: The run folder.
            rings: The folder of rings.
            run: The run's row.
            program: PID at the root of the process tree.
            options: What to sample, and how often.
            origin: The run clock's zero on the events' clock, ns.
            stored: Tables that an earlier recorder of the same run has stored.
            part: Suffix that distinguishes this recorder from others that write into the same folder.
        """
        self.folder = folder
        self._part = part
        self._rings = rings
        self._origin = origin
        self._interval = 1.0 / options.rate
        secrets = known_secrets(os.environ, run.command)
        self._store = Writer(folder, part or run.host, secrets, shared=bool(part))
        self.run = run
        self._drain = Drain(rings, origin, self._store.cursor, stored)
        self._host = HostSampler(program)
        self._gpus = GpuSampler(os.environ.get("CUDA_VISIBLE_DEVICES"), os.environ.get("CUDA_DEVICE_ORDER"))
        self._store.add(run, *self._gpus.gpus)
        self._keep_problems(self._gpus.problems)
        self._scheduling = Scheduling()
        self._next_sample = 0.0
        self._next_look = 0.0
        self._next_commit = 0.0
        self._next_sketch = SKETCH_EVERY
        self._next_beat = run_folder.BEAT
        self._polled: float | None = None
        self._silent = 0.0
        self._stacks = self._sampler() if options.stacks else None
        self._errors = [fact.body for fact in stored.facts if fact.kind == "error"] if stored else []
        program_start = run_folder.started(program)
        note = run_folder.RecordingNote(
            str(rings), origin, program, program_start, home=run_folder.home(folder), part=part, job=run.job
        )
        run_folder.write_note(folder, note)
        self._store.commit()

    @property
    def now(self) -> float:
        """Return the seconds on the run clock."""
        return (time.perf_counter_ns() - self._origin) / 1e9

    @property
    def steps(self) -> int:
        """Return the number of steps that every rank has recorded."""
        return min((source.steps for source in self._sources("rank")), default=0)

    def _sources(self, role: str) -> list[EventSource]:
        return [source for source in self._drain.sources.values() if source.process.role == role]

    def poll(self) -> float:
        """Do the work that is due; return the seconds until more is due."""
        now = self.now
        self._notice_silence(now)
        if now >= self._next_look:
            self._next_look = now + LOOK_EVERY
            self._drain.look()
            self._scheduling.look(now, [source.pid for source in self._sources("rank")])
        if now >= self._next_sample:
            # Never take two samples in a row to catch up: rates over a very short time mean nothing.
            self._next_sample = max(now + self._interval / 2, self._next_sample + self._interval)
            self._sample(now)
            self._take()
        if now >= self._next_commit:
            self._next_commit = now + COMMIT_EVERY
            self._look_at_stacks()
            if now >= self._next_sketch:
                self._next_sketch = now + SKETCH_EVERY
                self._keep_sums()
            else:
                self._store.add(
                    *(event_source.process for event_source in self._drain.sources.values() if event_source.introduced)
                )
            self._store.commit()
        if now >= self._next_beat:
            self._next_beat = now + run_folder.BEAT
            run_folder.heartbeat(self.folder, self._part)
        return max(0.001, self._next_sample - self.now)

    def _notice_silence(self, now: float) -> None:
        silence = 0.0 if self._polled is None else now - self._polled
        self._polled = now
        if silence > SILENCE + self._interval:
            self._silent += silence

    def problem(self, source: str, message: str, code: str = "") -> None:
        """Record something that the user should know about this recording."""
        self._store.add(Problem(time=self.now, source=source, message=message, code=code))

    def _sampler(self) -> StackSampler | None:
        # Imported only now, so that the program starts sooner.
        from profiler.recorder.stacks.sampler import StackSampler, wanted

        return StackSampler(self._rings, lambda: self.now, self.problem) if wanted() else None

    def _look_at_stacks(self) -> None:
        if self._stacks is None:
            return
        training_sources = [source for source in self._sources("rank") if source.steps]
        ranks = [
            source.pid
            for source in sorted(training_sources, key=lambda source: (source.process.rank, source.process.started))
        ]
        self._stacks.poll(ranks, self._workers_of)
        self._store.add(*self._stacks.rows())

    def _workers_of(self, pid: int) -> list[int]:
        workers = (source for source in self._sources("worker") if source.process.parent == pid)
        return sorted(source.pid for source in workers if source.pid in self._host.pids)

    def _keep_stacks(self) -> None:
        """End the stack sampler and store its last samples."""
        if self._stacks is not None:
            self._stacks.close()
            self._store.add(*self._stacks.rows(final=True))

    def _sample(self, now: float) -> None:
        self._store.add(self._host.sample(now, [source.pid for source in self._sources("worker")]))
        self._store.add(*self._gpus.sample(now, self._host.pids))
        self._keep_problems(self._gpus.problems)

    def _take(self, *, final: bool = False) -> None:
        for name, source in list(self._drain.sources.items()):
            rows = source.rows(final=final)
            self._errors += [row.body for row in rows if isinstance(row, Fact) and row.kind == "error"]
            if self._stacks is not None:
                self._stacks.note(*(row for row in rows if isinstance(row, Step)))
            self._store.add(*rows)
            self._store.set_cursor(f"ring {name}", source.cursor)
            self._store.set_cursor(f"facts {name}", source.offset)
            if not final and source.process.role == "worker" and source.pid not in self._host.pids and not rows:
                # A worker of a past epoch: everything it wrote is read, so its memory can be freed.
                self._bury(name)
        self._store.set_cursor("problems", self._drain.problems_read)
        self._keep_problems(self._drain.problems)

    def _keep_problems(self, problems: list[Problem]) -> None:
        self._store.add(*problems)
        problems.clear()

    def _bury(self, name: str) -> None:
        source = self._drain.bury(name)
        self._store.add(*source.totals())
        self._store.commit()
        source.remove()
        for kind in ("ring", "facts"):
            self._store.set_cursor(f"{kind} {name}", None)

    def _keep_sums(self, *, final: bool = False) -> None:
        """Store the totals of each process's whole life."""
        for source in self._drain.sources.values():
            self._store.add(*source.totals(final=final))
        self._store.add(*self._scheduling.facts())

    def suspend(self) -> None:
        """Store everything so far and leave the rings to their program."""
        self._drain.look()
        self._take()
        self._keep_stacks()
        self._keep_sums()
        self._store.close()
        self._gpus.close()

    def finish(
        self,
        outcome: Outcome | None,
        status: int | None = None,
        ended_by: int | None = None,
        asked: Asked | None = None,
    ) -> None:
        """Read the rest, parse the windows and close the store.

        If `outcome` is None, the agents' reports decide it.

        Raises:
            ProfilerError: the end of the run could not be written.
        """
        self._notice_silence(self.now)  # the program may have ended meanwhile
        self._drain.look()
        self._take(final=True)
        self._keep_stacks()
        self._keep_sums(final=True)
        self._windows()
        if outcome is None:
            rank_sources = self._sources("rank")
            outcome = "killed"
            if rank_sources and all(source.ended for source in rank_sources):
                outcome = "failed" if any(source.failed for source in rank_sources) else "completed"
        if self._silent:
            message = f"The recorder did not run for {self._silent:.0f} s: samples of that time are missing."
            self.problem("recorder", message)
        end_message = sentence(outcome, status, ended_by, self._errors, asked)
        if end_message is not None:
            self.problem("end", end_message, code(outcome, self._errors))
        last = max((source.last_event for source in self._drain.sources.values()), default=0)
        duration = self.now if status is not None or not last else (last - self._origin) / 1e9
        self.run = replace(
            self.run,
            duration=duration,
            outcome=outcome,
            exit_status=status,
            signal=ended_by,
            recorder_cpu=time.process_time() + (self._stacks.cpu if self._stacks else 0.0),
        )
        self._store.add(self.run)
        saved = self._store.close()
        self._gpus.close()
        if not saved:
            raise ProfilerError(
                f"The end of this run could not be written into {self.folder}; the data written before is kept.",
                f"Free some disk space there, then: profile-train report {self.folder}",
            )
        for source in self._drain.sources.values():
            source.remove()
        run_folder.remove_rings(self._rings)
        run_folder.remove_note(self.folder, self._part)

    def _windows(self) -> None:
        folder = run_folder.windows_of(self.folder, self._part)
        paths = list(folder.glob(run_folder.WINDOWS))
        if not paths and not any(source.windows for source in self._drain.sources.values()):
            return
        # Imported only now: they need NumPy, which would delay the program's start.
        from profiler.recorder.windows import parse, redact_trace

        for path in paths:
            redact_trace(path, known_secrets(os.environ, self.run.command))
        for source in self._drain.sources.values():
            traces = []
            for position, fact in enumerate(source.windows):
                path = folder / Path(str(fact.get("path", ""))).name  # the run folder may have moved
                try:
                    window, kernels, operators, syncs, trace = parse(
                        path,
                        pid=source.pid,
                        position=position,
                        start=(int(fact["start_ns"]) - self._origin) / 1e9,
                        steps=int(fact["steps"]),
                        cost=float(fact["cost_s"]),
                        device="cuda" if fact.get("device") == "cuda" else "cpu",
                    )
                    window = replace(window, steps=window.steps * float(fact.get("share", 1.0)))
                except (ProfilerError, KeyError, ValueError, TypeError, MemoryError) as error:
                    message = str(error) or f"There was no memory to read {path}."
                    self._store.add(Problem(time=self.now, pid=source.pid, source="window", message=message))
                    continue
                self._store.add(window, *kernels, *operators, *syncs)
                traces += [trace] if trace else []
            best_trace = max(
                traces, key=lambda candidate: (not candidate.shapes, candidate.steps or 0, candidate.id), default=None
            )
            for trace in traces:
                body = asdict(trace if trace is best_trace else replace(trace, looks=()))
                self._store.add(Fact(pid=source.pid, time=self.now, kind="trace", body=body))
