"""The recording: drain the rings, sample GPUs and host, write the store - ten times a second, from outside."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import socket
import time
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

from profiler import __version__
from profiler.errors import ProfilerError
from profiler.recorder import folder as place
from profiler.recorder.drain import Drain, Source
from profiler.recorder.gpu import GpuSampler
from profiler.recorder.host import HostSampler, machine
from profiler.recorder.kernels import parse
from profiler.schema import Fact, Outcome, Problem, Run
from profiler.store import Tables, Writer, find, read

# Looking for new processes is a directory listing; they do not appear that often.
LOOK_EVERY = 0.5

# Quantiles of the whole run matter once steps have been merged, which takes longer.
SKETCH_EVERY = 10.0

# What is not committed yet is still in the rings, should this process be killed.
COMMIT_EVERY = 0.5


def new_run(command: tuple[str, ...], origin: int, budget: float) -> Run:
    """The row of a recording that begins now on this machine."""
    here = machine()
    return Run(
        id=uuid.uuid4().hex,
        command=command,
        cwd=os.getcwd(),
        host=socket.gethostname(),
        started_at=time.time() - (time.perf_counter_ns() - origin) / 1e9,
        cores=here.cores,
        cores_total=here.cores_total,
        memory_total=here.memory_total,
        cpu_model=here.cpu_model,
        platform=here.platform,
        python=platform.python_version(),
        version=__version__,
        budget=budget,
    )


def finish_orphan(folder: Path) -> str | None:
    """If the recorder of this run was killed, read what the program has left in its rings since.

    Returns what to tell the user, or None if there was nothing to do. The program may still be training: then
    everything is read but nothing is closed.
    """
    note = place.read_note(folder)
    if note is None or place.is_running(folder):
        return None
    rings = Path(note.rings)
    stored = [node for node in map(read, find(folder)) if any(run.host == socket.gethostname() for run in node.runs)]
    if not stored or not rings.is_dir():
        return None
    recorder = Recorder(folder, rings, stored[-1].runs[-1], note.program, origin=note.origin, stored=stored[-1])
    if place.is_alive(note.program, note.program_started):
        recorder.suspend()
        return "The recorder of this run was killed and the program trains on: this is what it has left so far."
    recorder.finish(None)
    return "The recorder of this run was killed: the rest was read from what the program left behind."


class Recorder:
    """One node's recording into `folder`. Call `poll` often; it does what is due."""

    def __init__(
        self,
        folder: Path,
        rings: Path,
        run: Run,
        program: int,
        *,
        origin: int,
        rate: float = 10.0,
        stored: Tables | None = None,
    ) -> None:
        """`program` is the PID at the root of the process tree, `origin` the run clock's zero on the events' clock, ns,
        `rate` samples a second, `stored` what an earlier recorder of the same run has kept."""
        self.folder = folder
        self._rings = rings
        self._origin = origin
        self._interval = 1.0 / rate
        self._store = Writer(folder, run.host)
        self.run = run
        self._store.put(run)
        self._drain = Drain(rings, self._origin, self._store.cursor)
        self._drain.stored = stored
        self._host = HostSampler(program)
        self._gpus = GpuSampler.open(os.environ.get("CUDA_VISIBLE_DEVICES"), os.environ.get("CUDA_DEVICE_ORDER"))
        for gpu in self._gpus.gpus:
            self._store.put(gpu)
        self._store.append(list(self._gpus.take_problems()))
        self._next_sample = 0.0
        self._next_look = 0.0
        self._next_commit = 0.0
        self._next_sketch = SKETCH_EVERY
        place.write_note(
            folder,
            place.Note(
                rings=str(rings),
                origin=self._origin,
                recorder=os.getpid(),
                recorder_started=place.started(os.getpid()),
                program=program,
                program_started=place.started(program),
            ),
        )
        self._store.commit()

    @property
    def now(self) -> float:
        """The run clock, s."""
        return (time.perf_counter_ns() - self._origin) / 1e9

    def poll(self) -> float:
        """Do what is due; returns the seconds until something is due again."""
        now = self.now
        if now >= self._next_look:
            self._next_look = now + LOOK_EVERY
            self._drain.look()
        if now >= self._next_sample:
            # Never two in a row to catch up: rates over next to no time mean nothing.
            self._next_sample = max(now + self._interval / 2, self._next_sample + self._interval)
            self._sample(now)
            self._take()
        if now >= self._next_commit:
            self._next_commit = now + COMMIT_EVERY
            for source in self._drain.sources.values():
                self._store.put(source.process)
            if now >= self._next_sketch:
                self._next_sketch = now + SKETCH_EVERY
                for source in self._drain.sources.values():
                    self._keep_sums(source)
            self._store.commit()
        return max(0.001, self._next_sample - self.now)

    def _sample(self, now: float) -> None:
        workers = [source.pid for source in self._drain.sources.values() if source.process.role == "worker"]
        self._store.append([self._host.sample(now, workers)])
        samples = self._gpus.sample(now, self._host.pids)
        if samples:
            self._store.append(samples)
        problems = self._gpus.take_problems()
        if problems:
            self._store.append(list(problems))

    def _take(self, *, final: bool = False) -> None:
        for name, source in list(self._drain.sources.items()):
            rows = source.rows(final=final)
            for row in rows:
                self._keep(row)
            self._store.set_cursor(f"ring {name}", source.cursor)
            self._store.set_cursor(f"facts {name}", source.offset)
            if final:
                self._keep_sums(source)
            elif source.process.role == "worker" and source.pid not in self._host.pids and not rows:
                # A worker of an epoch that is over: what it wrote is read, its memory can go.
                self._bury(name)
        self._store.set_cursor("problems", self._drain.told)
        if self._drain.problems:
            self._store.append(list(self._drain.problems))
            self._drain.problems.clear()

    def _keep(self, row: Any) -> None:
        if isinstance(row, Fact):
            self._store.put(row)
        else:
            self._store.append([row])

    def _bury(self, name: str) -> None:
        source = self._drain.sources.pop(name)
        self._keep_sums(source)
        self._store.commit()
        source.remove()

    def _keep_sums(self, source: Source) -> None:
        """What has gathered over a process's whole life."""
        self._store.put(source.process)
        for quantity, sketch in source.sketches.items():
            self._store.put(sketch.to_sketch(source.pid, quantity))

    def suspend(self) -> None:
        """Keep what is there so far and leave the rings to their program."""
        self._drain.look()
        self._take()
        for source in self._drain.sources.values():
            self._keep_sums(source)
        self._store.close()
        self._gpus.close()

    def finish(self, outcome: Outcome | None, status: int | None = None, ended_by: int | None = None) -> None:
        """Read what is left, parse the windows, close the store. With `outcome` None the agents' own word decides."""
        self._drain.look()
        self._take(final=True)
        self._windows()
        if outcome is None:
            ended = [source for source in self._drain.sources.values() if source.process.role == "rank"]
            outcome = "killed"
            if ended and all(source.ended for source in ended):
                outcome = "failed" if any(source.failed for source in ended) else "completed"
        last = max((source.last_event for source in self._drain.sources.values()), default=0)
        duration = self.now if status is not None or not last else (last - self._origin) / 1e9
        self.run = replace(
            self.run,
            duration=duration,
            outcome=outcome,
            exit_status=status,
            signal=ended_by,
            recorder_cpu=time.process_time(),
        )
        self._store.put(self.run)
        saved = self._store.commit()
        self._store.close()
        self._gpus.close()
        if not saved:
            raise ProfilerError(
                f"The end of this run could not be written into {self.folder}.",
                "Free some space; what was written before stands.",
            )
        for source in self._drain.sources.values():
            source.remove()
        shutil.rmtree(self._rings, ignore_errors=True)
        with contextlib.suppress(OSError):
            (self.folder / place.NOTE).unlink()

    def _windows(self) -> None:
        for source in self._drain.sources.values():
            for position, fact in enumerate(source.windows):
                path = Path(str(fact.get("path", "")))
                try:
                    window, kernels = parse(
                        path,
                        pid=source.pid,
                        position=position,
                        start=(int(fact["start_ns"]) - self._origin) / 1e9,
                        steps=int(fact["steps"]),
                        cost=float(fact["cost_s"]),
                        device="cuda" if fact.get("device") == "cuda" else "cpu",
                    )
                except (ProfilerError, KeyError, ValueError, TypeError) as error:
                    self._store.append([Problem(time=self.now, pid=source.pid, source="window", message=str(error))])
                    continue
                self._store.append([window])
                self._store.append(list(kernels))
