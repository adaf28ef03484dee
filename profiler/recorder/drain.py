"""Convert the agents' files to rows: one `EventSource` per process, found in the folder of rings."""

from __future__ import annotations

import contextlib
import os
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any

from profiler.agent import ring
from profiler.agent.ring import Event
from profiler.quantile_sketch import Quantiles
from profiler.recorder.gpu_phases import GpuTimes
from profiler.recorder.program import ProgramSource
from profiler.recorder.steps import Segmenter
from profiler.schema import PHASES, Batch, Fact, MemorySample, Problem, Process, Sketch, Step
from profiler.store import Tables
from profiler.store.values import Misfit, build, fit, fitting, parse

# Maximum batches that wait for the fetch that names their loader: its event may be lost.
MOST_UNNAMED = 1_000

# Kinds of events that are not spans of a step.
_NO_SPANS = frozenset((ring.BATCH, ring.REGION, ring.GPU))

# Events that a thread writes only after the fetch in which it made a batch, and the event of that fetch.
_PAST_A_FETCH = frozenset((ring.FETCH, ring.OPTIMIZER, ring.STEP))

# Maximum ended loader workers that have their own rows.
MOST_WORKERS = 64

# Maximum bytes of a line in a facts file: a longer one is not a fact.
MOST_LINE = 1 << 20


class EventSource:
    """The ring and facts file of one process.

    Its rows carry the PID of `process`, which may differ from its own `pid`.
    """

    def __init__(
        self,
        path: Path,
        origin: int,
        cursor: int = 0,
        offset: int = 0,
        predecessor: Callable[[Process], EventSource | None] | None = None,
    ) -> None:
        """Open a ring and its facts file.

        `predecessor(process)` returns an ended worker whose rows this one continues, or None.

        Raises:
            ValueError: the file is not a ring.
            OSError: the file cannot be read.
        """
        self._ring_path = path
        self._facts_path = path.with_suffix(".facts")
        self._reader = ring.Reader(str(path), cursor)
        self._origin = origin
        self.offset = offset
        """Bytes of facts read so far."""
        self.pid = self._reader.pid
        self._predecessor = predecessor
        self._before: Process | None = None
        """The row that is continued, as the earlier process left it."""
        self.process = Process(pid=self.pid, parent=self._reader.parent, started=self._seconds(self._reader.clock_ns))
        self.introduced = False
        """Whether the process has reported what it is: a later worker may continue another's row."""
        self._segmenter = Segmenter(self.pid, origin)
        self._gpu_times = GpuTimes(origin)
        self.sketches: defaultdict[str, Quantiles] = defaultdict(Quantiles)
        self._loaders: dict[int, dict[str, Any]] = {}
        self._flags: dict[str, Any] | None = None
        self._regions: dict[int, dict[str, Any]] = {}
        self._program = ProgramSource(since=self._reader.unix_ns / 1e9)
        self.windows: list[dict[str, Any]] = []
        self._unnamed: list[Event] = []
        """Batches whose loader is known only once the fetch around them is read."""
        self._unbounded = False
        self.last_event = 0
        self.ended = False
        """Whether the agent has reported the end of the program."""
        self.failed = False
        """Whether the program ended by an uncaught exception."""

    def resume(self, stored: Tables) -> None:
        """Continue where an earlier recorder of this run was cut off; `stored` holds its tables."""
        self._segmenter.index = sum(step.count for step in stored.steps if step.pid == self.pid)
        own_sketches = (sketch for sketch in stored.sketches if sketch.pid == self.pid)
        self.sketches.update({sketch.quantity: Quantiles.from_sketch(sketch) for sketch in own_sketches})
        self.windows = [dict(fact.body) for fact in stored.facts if fact.pid == self.pid and fact.kind == "window"]
        for fact in stored.facts:
            if fact.pid == self.pid and fact.kind == "end":
                self.ended, self.failed = True, bool(fact.body.get("failed"))

    def _seconds(self, ns: int) -> float:
        return (ns - self._origin) / 1e9

    @property
    def steps(self) -> int:
        """Return the number of steps that have ended."""
        return self._segmenter.index

    @property
    def cursor(self) -> int:
        """Return the number of records read so far."""
        return self._reader.cursor

    def rows(self, *, final: bool = False) -> list[Any]:
        """Return everything new since the last call, as rows of `profiler.schema`."""
        lost_before = self._reader.lost
        events = self._reader.read()
        if final:
            events += self._reader.read()  # continue past a hole: the reader waits once for it to be filled
        rows = self._facts()  # after the events: facts that they refer to are written by then
        other_events = [event for event in events if event.kind in _NO_SPANS]
        if other_events or self._unnamed:
            rows += self._batches(events, final)
            rows += self._named(other_events)
        marks = [event for event in other_events if event.kind == ring.GPU]
        if self._reader.lost > lost_before and marks:
            marks[0] = marks[0]._replace(a=-1)  # the mark from which it counts may be lost
        steps = self._segmenter.feed(events)
        if final:
            pending = self._segmenter.pending
            steps += self._segmenter.flush()
            # A worker does not train; an event pending there is a garbage collection.
            self._segmenter.unbounded |= pending and self._segmenter.index == 0 and self.process.role == "rank"
        steps = self._gpu_times.join(steps, marks, final=final)
        self._sketch_steps(steps)
        rows += steps
        if events:
            self.last_event = max(event.end for event in events[-64:])
        rows += self._learned()
        self._account(final)
        return rows

    def _account(self, final: bool) -> None:
        counters = self._reader.counters()
        events_read = self._reader.cursor
        predecessor = self._before
        hooks = max(0.0, (events_read * counters.per_event_ns + counters.rare_ns) / 1e9)
        windows = max(0.0, counters.windows_ns / 1e9, sum(float(window.get("cost_s", 0.0)) for window in self.windows))
        self.process = replace(
            self.process,
            events=events_read - self._reader.lost + (predecessor.events if predecessor else 0),
            events_lost=self._reader.lost + (predecessor.events_lost if predecessor else 0),
            hooks=hooks + (predecessor.hooks if predecessor else 0.0),
            windows=windows + (predecessor.windows if predecessor else 0.0),
            ended=self._seconds(self.last_event) if final and self.last_event else self.process.ended,
        )

    def _batches(self, events: list[Event], final: bool) -> list[Batch]:
        """Return the batches that were made.

        A batch made in the training process waits for the fetch around it, which names its loader and is written later.
        """
        batches = []
        unnamed = self._unnamed
        for event in events:
            kind = event.kind
            if kind == ring.BATCH:
                if event.id or self.process.role == "worker":
                    batches.append(self._batch(event))
                else:
                    unnamed.append(event)
            elif unnamed and kind in _PAST_A_FETCH:
                lane_batches = [batch for batch in unnamed if batch.lane == event.lane]
                unnamed[:] = [batch for batch in unnamed if batch.lane != event.lane]
                for batch in lane_batches:
                    is_inside = kind == ring.FETCH and event.start <= batch.start
                    batches.append(self._batch(batch._replace(id=event.id) if is_inside else batch))
        if final or len(unnamed) > MOST_UNNAMED:
            batches += [self._batch(batch) for batch in unnamed]
            unnamed.clear()
        return batches

    def _batch(self, event: Event) -> Batch:
        duration = (event.end - event.start) / 1e9
        self.sketches["batch"].add(duration)
        return Batch(
            pid=self.process.pid,
            loader=event.id,
            start=self._seconds(event.start),
            duration=duration,
            cpu=event.a / 1e9,
            collate=event.b / 1e9,
            samples=float(event.c),
            files=None if event.d < 0 else float(event.d),
        )

    def _named(self, events: list[Event]) -> list[Fact]:
        """Return a fact for each region passed since the last call, with its totals over all passes."""
        regions: dict[int, dict[str, Any]] = {}
        for event in events:
            if event.kind == ring.REGION:
                region = self._region(event.id)
                region["count"] += 1
                region["seconds"] += (event.end - event.start) / 1e9
                regions[event.id] = region
        time = self._seconds(events[-1].end) if events else 0.0
        return [self._fact(time, "region", dict(region)) for region in regions.values()]

    def _region(self, number: int) -> dict[str, Any]:
        return self._regions.setdefault(number, {"id": number, "count": 0, "seconds": 0.0})

    def _sketch_steps(self, steps: list[Step]) -> None:
        steady_steps = [step for step in steps if not step.tags]
        for quantity in ("duration", *PHASES) if steady_steps else ():
            values = [value for value in map(attrgetter(quantity), steady_steps) if value is not None]
            if values:
                self.sketches[quantity].extend(values)

    # ---- facts ----

    def _facts(self) -> list[Any]:
        try:
            with open(self._facts_path, "rb") as file:
                file.seek(self.offset)
                data = file.read()
        except OSError:
            return []
        rows: list[Any] = []
        lines = data.split(b"\n")
        rest = lines.pop()  # a line still being written is read next time
        if len(rest) > MOST_LINE:
            rest = b""
        self.offset += len(data) - len(rest)
        for line in lines:
            if len(line) > MOST_LINE:
                continue
            with contextlib.suppress(*_UNFIT):
                fact = parse(line)
                if isinstance(fact, dict):
                    rows += self._rows_of(fact)
        return rows

    def _rows_of(self, fact: dict[str, Any]) -> list[Any]:
        """Return the rows of a line of the facts file.

        Raises:
            _UNFIT: the line is not a fact.
        """
        kind = str(fact.pop("kind", "?"))
        time = self._seconds(int(fact.pop("t")))
        calls = self._program.complete(kind, fact)
        match kind:
            case "process":
                self._introduce(fact)
                return []
            case "allocator":
                return [build(MemorySample, {**fact, "time": time, "pid": self.process.pid})]
            case "problem":
                source = str(fact["source"])
                self._segmenter.unmeasured.update(_MEASURED_BY.get(source, ()))
                message, code = str(fact["message"]).rstrip("."), str(fact.get("code", ""))
                if source == "trial":  # a change that failed
                    message = f"{message.removeprefix('RuntimeError: ')}."
                else:
                    subject = _WATCHED.get(source, source if source.isidentifier() else "a detail")
                    message = f"Not fully measured: {subject} ({message})."
                return [Problem(time=time, pid=self.process.pid, source=source, message=message, code=code)]
            case "window":
                fact["cost_s"] = fit(fact["cost_s"], float)
                self.windows.append(fact)
                fact = {"id": len(self.windows), **fact}
            case "end":
                self.ended, self.failed = True, bool(fact.get("failed"))
                fact = {"failed": self.failed}
            case "loader":
                self._loaders[int(fact["id"])] = fact
            case "region":
                region = self._region(int(fact["id"]))
                region["name"] = str(fact["name"])
                fact = dict(region)
            case "model":
                self._segmenter.unmeasured.update(_HOST_ONLY if _is_elsewhere(fact) else ())
            case "flags":
                self._flags = fact
                fact["evaluation_grad"] = self._segmenter.evaluation.grad
        return [self._fact(time, kind, fact), *(self._fact(time, "call", call) for call in calls)]

    def _fact(self, time: float, kind: str, body: dict[str, Any]) -> Fact:
        return Fact(pid=self.process.pid, time=time, kind=kind, body=body)

    def _introduce(self, fact: dict[str, Any]) -> None:
        """Store what the process reports about itself; a worker may then continue the rows of an ended one."""
        self.introduced = True
        self.process = replace(self.process, **fitting(Process, fact))
        predecessor = self._predecessor(self.process) if self._predecessor and self.process.role == "worker" else None
        self._predecessor = None
        if predecessor is not None:
            self._before = predecessor.process
            self.process = replace(self.process, pid=predecessor.process.pid, started=predecessor.process.started)
            self.sketches = predecessor.sketches

    def _learned(self) -> list[Any]:
        """Return updated loader and flags facts, and a problem if no steps are found.

        They contain what the segmenter has learned about the use of the loaders.
        """
        rows: list[Any] = []
        time, evaluation = self._seconds(self.last_event), self._segmenter.evaluation
        for number, fact in self._loaders.items():
            training = True if number in evaluation.trained else False if number in evaluation.evaluated else None
            if fact.get("training") != training:
                fact["training"] = training
                rows.append(self._fact(time, "loader", dict(fact)))
        if self._flags is not None and self._flags.get("evaluation_grad") != evaluation.grad:
            self._flags["evaluation_grad"] = evaluation.grad
            rows.append(self._fact(time, "flags", dict(self._flags)))
        if self._segmenter.unbounded and not self._unbounded:
            self._unbounded = True
            message, code = "No optimizer step was seen. Call profiler.step() at the end of each iteration.", "unseen"
            if self._segmenter.index:
                message = (
                    f"More passes followed step {self._segmenter.index} than could be kept, so the earliest ones were "
                    "dropped."
                )
                code = "left-out"
            rows.append(Problem(time=time, pid=self.process.pid, source="steps", message=message, code=code))
        return rows

    def totals(self, *, final: bool = False) -> list[Process | Sketch]:
        """Return the rows on the process's whole life: its sketches, and its Process once introduced or if `final`."""
        sketches = [sketch.to_sketch(self.process.pid, quantity) for quantity, sketch in self.sketches.items()]
        return [self.process, *sketches] if self.introduced or final else [*sketches]

    def remove(self) -> None:
        """Delete the files to free their memory: the process is gone and everything is read."""
        self._reader.close()
        for path in (self._ring_path, self._facts_path):
            with contextlib.suppress(OSError):
                path.unlink()


# Exceptions from reading a line that is not a fact.
_UNFIT = (ValueError, TypeError, KeyError, OverflowError, RecursionError, Misfit)


# What each hook of the agent measures, in words for the user.
_WATCHED = {
    "optimizer": "optimizers and their steps",
    "model": "the model's layers and sizes",
    "backward": "backward passes",
    "forward": "forward passes",
    "dataloader": "waiting for data",
    "ray_data": "waiting for batches of Ray Data",
    "save": "saving",
    "gc": "garbage collections",
    "usage": "the features of torch that the program uses",
    "output": "logging and output",
    "windows": "kernels",
    "cuda_events": "the time of each phase on the GPU",
    "cuda_graphs": "steps replayed as CUDA graphs",
    "tracebacks": "the error that ends the program",
}


# Fields of Step that are unknown once a hook of the agent has removed itself.
_MEASURED_BY = {
    "ray_data": ("data_wait",),
    "dataloader": ("data_wait", "loader_overhead", "epoch_start", "fetch_host", "fetches_empty", "queue_depth"),
    "forward": ("forward", "forwards", "evaluation"),
    "backward": ("backward",),
    "save": ("checkpoint_save",),
    "gc": ("gc",),
    "cuda_events": tuple(name for name in PHASES if name != "h2d"),
}
# Phases that the host cannot time if it runs ahead of its accelerator, because it would time launches.
_HOST_ONLY = _MEASURED_BY["cuda_events"]


def _is_elsewhere(model: dict[str, Any]) -> bool:
    """Return whether a model is on an accelerator whose time is not measured: XPU, MPS, HPU, XLA, ..."""
    devices = model.get("devices") or ()
    return any(name.partition(":")[0] not in ("cpu", "cuda", "meta") for name in devices)


class Drain:
    """The processes of the run on this node."""

    def __init__(self, folder: Path, origin: int, cursors: Callable[[str], int], stored: Tables | None = None) -> None:
        """Prepare to read the folder.

        `cursors(name)` returns where an earlier recorder of this run stopped, 0 for new files; `stored` are its tables.
        """
        self._folder = folder
        self._origin = origin
        self._cursors = cursors
        self.sources: dict[str, EventSource] = {}
        self._stored = stored
        self._refused: set[str] = set()
        self._buried = 0
        self._dead: dict[tuple[int | None, int | None], list[EventSource]] = {}
        """Ended workers whose rows can be continued, by parent and worker number."""
        self.problems_read = cursors("problems")
        """Bytes read so far of the reports by agents that could not make a ring."""
        self.problems: list[Problem] = []

    def look(self) -> None:
        """Open the rings that have appeared."""
        self._look_for_problems()
        try:
            names = os.listdir(self._folder)
        except OSError:
            return
        for name in names:
            path = self._folder / name
            if path.suffix != ".ring" or path.stem in self.sources or path.stem in self._refused:
                continue
            try:
                cursor, offset = self._cursors(f"ring {path.stem}"), self._cursors(f"facts {path.stem}")
                source = EventSource(path, self._origin, cursor, offset, self._predecessor)
                if self._stored is not None:
                    source.resume(self._stored)
                self.sources[path.stem] = source
            except (OSError, ValueError) as error:
                with contextlib.suppress(OSError):  # it has gone, with its process
                    if path.stat().st_size > 0:
                        self._refused.add(path.stem)
                        self.problems.append(Problem(time=0.0, source="ring", message=str(error)))

    def bury(self, name: str) -> EventSource:
        """Retire the source of a worker that has ended and was read to its end."""
        source = self.sources.pop(name)
        self._buried += 1
        self._dead.setdefault((source.process.parent, source.process.worker_id), []).append(source)
        return source

    def _predecessor(self, process: Process) -> EventSource | None:
        """Return an ended worker whose rows `process` continues, or None.

        A loader may restart its workers every epoch, thousands of times. The first MOST_WORKERS have rows of their own;
        later ones continue the rows of an ended worker with the same number.
        """
        dead_workers = self._dead.get((process.parent, process.worker_id))
        return dead_workers.pop() if dead_workers and self._buried >= MOST_WORKERS else None

    def _look_for_problems(self) -> None:
        """Read the reports of processes that could not make a ring.

        A report holds PID, clock (ns) and the system's message. It is a line of one file or, if the process had no
        descriptor left, the target of a symbolic link.
        """
        try:
            with open(self._folder / "problems", "rb") as file:
                file.seek(self.problems_read)
                lines = file.read().splitlines(keepends=True)
        except OSError:
            lines = []
        for line in lines:
            if not line.endswith(b"\n"):
                break
            self.problems_read += len(line)
            self._not_kept(line.decode(errors="replace").strip())
        for link in self._folder.glob("*.problem"):
            with contextlib.suppress(OSError):
                report = os.readlink(link)
                link.unlink()
                self._not_kept(report)

    def _not_kept(self, said: str) -> None:
        with contextlib.suppress(ValueError):
            pid, clock, reason = said.split(" ", 2)
            message = f"Process {pid} is not in this recording, because its events could not be stored: {reason}."
            time = (int(clock) - self._origin) / 1e9
            self.problems.append(Problem(time=time, pid=int(pid), source="ring", message=message))
