"""What a profiler window shows: where the GPU's time went and why it was idle; on a CPU, which operators took it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import Literal, NamedTuple

from profiler.errors import ProfilerError
from profiler.recorder.intervals import Interval, difference, intersection, length, union
from profiler.recorder.kernel_kinds import kernel_kind, operator_kind
from profiler.recorder.trace import Event, read
from profiler.schema import Kernel, Window

MARK = "profile-train step"
"""The agent's mark at a step boundary; `profiler.agent.window.MARK` is the same, which a test holds together."""

_GPU = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
_LAUNCHES = frozenset({"cuda_runtime", "cuda_driver"})
_NAME_LENGTH = 300  # C++ template names run to thousands of characters; nobody reads further

# What an optimizer without a foreach or fused kernel launches looks like any other arithmetic; the range tells.
_OPTIMIZER_WORK = frozenset({"elementwise", "reduction", "normalization", "other"})


def parse(
    path: Path,
    *,
    pid: int,
    window: int,
    start: float,
    steps: int,
    cost: float,
    device: Literal["cpu", "cuda"] | None = None,
) -> tuple[Window, list[Kernel]]:
    """Read the trace of one window of process `pid`.

    `window` is its position among those of its process, `start` its first step boundary on the run clock (s), `cost` what
    it cost the program (s). `steps` counts only if the trace marks no steps itself. With `device` "cuda", a trace without
    GPU work is an error rather than an idle GPU.

    On CUDA the first marked step only leads in: as it begins, the GPU is still at work on kernels launched before the
    profiler saw them. The rest is cut where the GPU reaches each boundary, and its time parts exactly into
    busy + h2d + idle_data + idle_sync + idle_launch + idle_other (the exposed-time rule of `profiler.schema.Step`).

    Raises ProfilerError if the file is cut off, foreign or holds nothing to measure.
    """
    events = read(path)
    on_gpu = any(event.category in _GPU for event in events)
    if device == "cuda" and not on_gpu:
        raise ProfilerError(
            f"The profiler window {path} shows no GPU work.",
            "Another tool may hold CUPTI (Nsight, DCGM profiling, a debugger): end it, and record again.",
        )
    marks = _marks(events)
    lead_in = 1 if on_gpu and len(marks) > 2 else 0
    if len(marks) > 1:
        steps = len(marks) - 1 - lead_in
        begin, end = marks[lead_in], marks[-1]
    else:
        begin, end = min(event.start for event in events), max(event.end for event in events)
    shift = begin - (marks[0] if marks else begin)
    if not on_gpu:
        operators = [event for event in events if event.category == "cpu_op" and begin <= event.start < end]
        shown = Window(
            pid=pid, start=start, steps=steps, duration=end - begin, cost=cost, device="cpu", events=len(events)
        )
        return shown, _operators(operators, _optimizer(events), pid, window)
    gpu = _Gpu.of(events, begin, end)
    shown = Window(
        pid=pid,
        start=start + shift,
        steps=steps,
        duration=gpu.end - gpu.begin,
        cost=cost,
        device="cuda",
        events=len(events),
        **gpu.times(events),
    )
    return shown, _kernels(gpu, _optimizer(events), pid, window)


class _Work(NamedTuple):
    """One kernel, copy or fill on the GPU, and the host call that launched it, if it is known."""

    event: Event
    call: Event | None

    @property
    def asked(self) -> float:
        """When the host asked for it."""
        return self.event.start if self.call is None else self.call.start


class _Gpu(NamedTuple):
    """The GPU's work from the moment it reaches the first step boundary to the moment it reaches the last."""

    begin: float
    end: float
    work: list[_Work]
    """All the trace holds, by start."""
    inside: list[_Work]
    """What the host asked for between the two boundaries."""

    @classmethod
    def of(cls, events: list[Event], begin: float, end: float) -> _Gpu:
        calls = {e.correlation: e for e in events if e.category in _LAUNCHES and e.correlation is not None}
        work = [_Work(e, calls.get(e.correlation)) for e in events if e.category in _GPU]
        work.sort(key=lambda each: each.event.start)
        # The GPU reaches a boundary when all that was asked for before it is done.
        reached = [
            max([boundary, *(each.event.end for each in work if each.asked < boundary)]) for boundary in (begin, end)
        ]
        return cls(reached[0], reached[1], work, [each for each in work if begin <= each.asked < end])

    def times(self, events: list[Event]) -> dict[str, float]:
        """The measured fields of schema.Window."""
        kinds = {each.event.name: kernel_kind(each.event.name).kind for each in self.work}
        transfers = {"h2d": "HtoD", "d2h": "DtoH"}
        h2d, d2h = (self._time(e for e in self._events("gpu_memcpy") if way in e.name) for way in transfers.values())
        pageable = self._time(e for e in self._events("gpu_memcpy") if "HtoD" in e.name and "Pageable" in e.name)
        busy = self._time(
            e
            for e in self._events()
            if e.category != "gpu_memcpy" or not any(way in e.name for way in transfers.values())
        )
        collective = self._time(e for e in self._events() if kinds[e.name] == "communication")
        compute = self._time(
            e for e in self._events() if e.category != "gpu_memcpy" and kinds[e.name] != "communication"
        )
        idle = difference([(self.begin, self.end)], busy)
        loading = self._time(e for e in events if e.category == "user_annotation" and _is_fetch(e.name))
        data = intersection(idle, loading)
        idle = difference(idle, data)
        copying = intersection(idle, h2d)
        idle = difference(idle, copying)
        ...
        return {}
