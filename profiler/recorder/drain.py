"""From the files of the agents to rows: one `Source` a process, found by looking into the folder of rings."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from profiler.agent import ring
from profiler.agent.ring import Event
from profiler.recorder.gpu_phases import GpuTimes
from profiler.recorder.steps import Segmenter
from profiler.schema import (
    PHASES,
    Batch,
    Fact,
    MemorySample,
    Problem,
    Process,
    Step,
)
from profiler.sketch import Quantiles
from profiler.store import Tables
from profiler.store.values import Misfit, fit, hints

# A line longer than this is no fact of ours.
MOST_LINE = 1 << 20


class Source:
    """One process's ring and facts file."""

    def __init__(self, path: Path, origin: int, cursor: int = 0, offset: int = 0) -> None:
        """Raises ValueError or OSError for what is no ring."""
        self.name = path.stem
        self._ring_path = path
        self._facts_path = path.with_suffix(".facts")
        self._reader = ring.Reader(str(path), cursor)
        self._origin = origin
        self._offset = offset
        self.pid = self._reader.pid
        self.process = Process(pid=self.pid, parent=self._reader.parent, started=self._seconds(self._reader.clock_ns))
        self._segmenter = Segmenter(self.pid, origin)
        self._gpu_times = GpuTimes(origin)
        self.sketches: dict[str, Quantiles] = {}
        self._loaders: dict[int, dict[str, Any]] = {}
        self._flags: dict[str, Any] | None = None
        self._regions: dict[int, dict[str, Any]] = {}
        self.windows: list[dict[str, Any]] = []
        self._unbounded = False
        self.last_event = 0
        self.ended = False
        """The agent has said that the program is over."""
        self.failed = False
        """... by an exception that nobody caught."""

    def resume(self, stored: Tables) -> None:
        """Go on where an earlier recorder of this run was cut off; `stored` is what it has kept."""
        self._segmenter.index = sum(step.count for step in stored.steps if step.pid == self.pid)
        self.sketches = {
            sketch.quantity: Quantiles.from_sketch(sketch) for sketch in stored.sketches if sketch.pid == self.pid
        }
        self.windows = [dict(fact.body) for fact in stored.facts if fact.pid == self.pid and fact.kind == "window"]

    def _seconds(self, ns: int) -> float:
        return (ns - self._origin) / 1e9

    @property
    def cursor(self) -> int:
        """Records read so far."""
        return self._reader.cursor

    @property
    def offset(self) -> int:
        """Bytes of facts read so far."""
        return self._offset

    def rows(self, *, final: bool = False) -> list[Any]:
        """What has come since the last call, as rows of `profiler.schema`."""
        rows: list[Any] = self._facts()
        lost = self._reader.lost
        events = self._reader.read()
        if final:
            events += self._reader.read()  # past a hole, which the reader gives one chance to be filled
        rows += self._batches(events)
        rows += self._named(events)
        marks = [event for event in events if event.kind == ring.GPU]
        if self._reader.lost > lost and marks:
            marks[0] = marks[0]._replace(a=-1)  # the mark it counts from may be among the lost
        steps = self._segmenter.feed(event for event in events if event.kind not in (0, ring.GPU, ring.BATCH))
        if final:
            pending = self._segmenter.pending
            steps += self._segmenter.flush()
            self._segmenter.unbounded |= pending and self._segmenter.index == 0
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
        read = self._reader.cursor
        self.process = replace(
            self.process,
            events=read - self._reader.lost,
            events_lost=self._reader.lost,
            hooks=max(0.0, (read * counters.per_event_ns + counters.rare_ns) / 1e9),
            windows=max(0.0, counters.windows_ns / 1e9, sum(float(w.get("cost_s", 0.0)) for w in self.windows)),
            ended=self._seconds(self.last_event) if final and self.last_event else self.process.ended,
        )

    def _batches(self, events: list[Event]) -> list[Batch]:
        batches = []
        for event in events:
            if event.kind != ring.BATCH:
                continue
            duration = (event.end - event.start) / 1e9
            self._sketch("batch", duration)
            batches.append(
                Batch(
                    pid=self.pid,
                    loader=event.id,
                    start=self._seconds(event.start),
                    duration=duration,
                    cpu=event.a / 1e9,
                    collate=event.b / 1e9,
                    samples=float(event.c),
                    files=None if event.d < 0 else float(event.d),
                )
            )
        return batches

    def _named(self, events: list[Event]) -> list[Fact]:
        """The regions that have been passed since, each with all its passes."""
        passed: dict[int, dict[str, Any]] = {}
        for event in events:
            if event.kind == ring.REGION:
                region = self._regions.setdefault(event.id, {"id": event.id, "count": 0, "seconds": 0.0})
                region["count"] += 1
                region["seconds"] += (event.end - event.start) / 1e9
                passed[event.id] = region
        time = self._seconds(events[-1].end) if events else 0.0
        return [Fact(pid=self.pid, time=time, kind="region", body=dict(region)) for region in passed.values()]

    def _sketch(self, quantity: str, value: float) -> None:
        sketch = self.sketches.get(quantity)
        if sketch is None:
            sketch = self.sketches[quantity] = Quantiles()
        sketch.add(value)

    def _sketch_steps(self, steps: list[Step]) -> None:
        for step in steps:
            if step.tags:
                continue
            self._sketch("duration", step.duration)
            for phase in PHASES:
                value = getattr(step, phase)
                if value is not None:
                    self._sketch(phase, value)

    # ---- facts ----

    def _facts(self) -> list[Any]:
        try:
            with open(self._facts_path, "rb") as file:
                file.seek(self._offset)
                data = file.read()
        except OSError:
            return []
        rows: list[Any] = []
        lines = data.split(b"\n")
        rest = lines.pop()  # a line still being written is read next time
        if len(rest) > MOST_LINE:
            rest = b""
        self._offset += len(data) - len(rest)
        for line in lines:
            if len(line) > MOST_LINE:
                continue
            with contextlib.suppress(*_UNFIT):
                fact = json.loads(line)
                if isinstance(fact, dict):
                    rows += self._row(fact)
        return rows

    def _row(self, fact: dict[str, Any]) -> list[Any]:
        kind = str(fact.pop("kind", "?"))
        time = self._seconds(int(fact.pop("t")))
        handler = _HANDLERS.get(kind)
        if handler is not None:
            return handler(self, time, fact)
        if kind == "loader":
            self._loaders[int(fact["id"])] = fact
        elif kind == "region":
            region = self._regions.setdefault(int(fact["id"]), {"id": int(fact["id"]), "count": 0, "seconds": 0.0})
            region["name"] = str(fact["name"])
            fact = dict(region)
        elif kind == "flags":
            self._flags = fact
            fact["evaluation_grad"] = self._segmenter.evaluation_grad
        return [Fact(pid=self.pid, time=time, kind=kind, body=fact)]

    def _is_process(self, time: float, fact: dict[str, Any]) -> list[Any]:
        for name in _PROCESS_FIELDS:
            with contextlib.suppress(KeyError, Misfit):
                self.process = replace(self.process, **{name: _bounded(fit(fact[name], hints(Process)[name]))})
        return []

    def _is_allocator(self, time: float, fact: dict[str, Any]) -> list[Any]:
        return [
            MemorySample(time=time, pid=self.pid, **{name: _bounded(int(fact[name])) for name in _ALLOCATOR_FIELDS})
        ]

    def _is_problem(self, time: float, fact: dict[str, Any]) -> list[Any]:
        source = str(fact["source"])
        self._segmenter.unmeasured.update(_MEASURED_BY.get(source, ()))
        return [Problem(time=time, pid=self.pid, source=source, message=str(fact["message"]))]

    def _is_window(self, time: float, fact: dict[str, Any]) -> list[Any]:
        fact["cost_s"] = fit(fact["cost_s"], float)
        self.windows.append(fact)
        return [Fact(pid=self.pid, time=time, kind="window", body={"id": len(self.windows), **fact})]

    def _is_end(self, time: float, fact: dict[str, Any]) -> list[Any]:
        self.ended = True
        self.failed = bool(fact.get("failed"))
        return []

    def _learned(self) -> list[Any]:
        """Loader facts, completed by what the segmenter has found out of their use."""
        rows: list[Any] = []
        for number, fact in self._loaders.items():
            training = (
                True if number in self._segmenter.trained else False if number in self._segmenter.evaluated else None
            )
            if fact.get("training") != training:
                fact["training"] = training
                rows.append(Fact(pid=self.pid, time=self._seconds(self.last_event), kind="loader", body=dict(fact)))
        if self._flags is not None and self._flags.get("evaluation_grad") != self._segmenter.evaluation_grad:
            self._flags["evaluation_grad"] = self._segmenter.evaluation_grad
            rows.append(Fact(pid=self.pid, time=self._seconds(self.last_event), kind="flags", body=dict(self._flags)))
        if self._segmenter.unbounded and not self._unbounded:
            self._unbounded = True
            rows.append(
                Problem(
                    time=self._seconds(self.last_event),
                    pid=self.pid,
                    source="steps",
                    message="No optimizer step was seen. Call profiler.step() at the end of each iteration.",
                )
            )
        return rows

    def remove(self) -> None:
        """The process is gone and everything is read: free the memory its files hold."""
        self._reader.close()
        for path in (self._ring_path, self._facts_path):
            with contextlib.suppress(OSError):
                path.unlink()


# What reading a line may come to that is no fact of ours.
_UNFIT = (ValueError, TypeError, KeyError, OverflowError, RecursionError, Misfit)


def _bounded(value: Any) -> Any:
    """Raises Misfit for an integer that the store does not hold."""
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise Misfit
    return value


_PROCESS_FIELDS = (
    "parent",
    "role",
    "worker_id",
    "rank",
    "local_rank",
    "world_size",
    "node_rank",
    "python",
    "torch",
    "cuda",
    "hip",
)
# What of a step is unknown once a hook of the agent has taken itself out.
_MEASURED_BY = {
    "dataloader": ("data_wait", "loader_overhead", "epoch_start", "fetch_host", "fetches_empty", "queue_depth"),
    "forward": ("forward", "evaluation"),
    "backward": ("backward",),
    "save": ("checkpoint_save",),
    "gc": ("gc",),
}
_ALLOCATOR_FIELDS = ("device", "allocated", "allocated_peak", "reserved", "reserved_peak", "retries", "ooms")
_HANDLERS: dict[str, Callable[[Source, float, dict[str, Any]], list[Any]]] = {
    "process": Source._is_process,
    "allocator": Source._is_allocator,
    "problem": Source._is_problem,
    "window": Source._is_window,
    "end": Source._is_end,
}


class Drain:
    """Every process of the run on this node."""

    def __init__(self, folder: Path, origin: int, cursors: Callable[[str], int]) -> None:
        """`cursors(name)` is where an earlier recorder stopped; 0 for what is new."""
        self._folder = folder
        self._origin = origin
        self._cursors = cursors
        self.sources: dict[str, Source] = {}
        self.stored: Tables | None = None
        """What an earlier recorder of this run has kept, if there was one."""
        self._refused: set[str] = set()
        self.told = cursors("problems")
        """Bytes read of what the agents that found no room have left."""
        self.problems: list[Problem] = []

    def look(self) -> None:
        """Take up the rings that have appeared."""
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
                source = Source(
                    path, self._origin, self._cursors(f"ring {path.stem}"), self._cursors(f"facts {path.stem}")
                )
                if self.stored is not None:
                    source.resume(self.stored)
                self.sources[path.stem] = source
            except (OSError, ValueError) as error:
                if path.exists() and path.stat().st_size > 0:
                    self._refused.add(path.stem)
                    self.problems.append(Problem(time=0.0, source="ring", message=str(error)))

    def _look_for_problems(self) -> None:
        """Processes that could not make a ring append a line to one file: PID, clock (ns), what the system said."""
        try:
            with open(self._folder / "problems", "rb") as file:
                file.seek(self.told)
                lines = file.read().splitlines(keepends=True)
        except OSError:
            return
        for line in lines:
            if not line.endswith(b"\n"):
                return
            self.told += len(line)
            with contextlib.suppress(ValueError):
                pid, clock, said = line.decode(errors="replace").strip().split(" ", 2)
                message = f"There was no room for the events of process {pid}, it is not in this recording: {said}."
                time = (int(clock) - self._origin) / 1e9
                self.problems.append(Problem(time=time, pid=int(pid), source="ring", message=message))
