"""Steps and their phases, as far as a trace distinguishes them.

On a GPU the phases are exposed times. The part of a step that is not waiting, copying or communication belongs to the
pass that launched the running work, or that the host was in while the GPU waited for it. On a CPU the phases are host
times. Backward passes are recognized by the autograd engine's ranges, updates by the optimizer's. Everything before a
step's last backward pass is forward, everything after it is other.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from profiler.importers.gpu_time import Shares
from profiler.importers.intervals import Integers, Spans, union
from profiler.importers.kineto import Trace
from profiler.importers.steps import Steps, numbers
from profiler.importers.tables import PID
from profiler.importers.work import FETCH, SLOW_CALL, GpuWork, HostActivity
from profiler.schema import Step

FORWARD, BACKWARD, OPTIMIZER, OTHER = range(4)
PASSES = {"backward": BACKWARD, "forward": FORWARD, "optimizer": OPTIMIZER}
SINGLE = f"{FETCH}_SingleProcessDataLoaderIter"
"""Prefix of fetches from a loader without workers: all of their time is waiting."""


def steps_on_gpu(trace: Trace, work: GpuWork, host: HostActivity, parts: Shares, steps: Steps) -> tuple[Step, ...]:
    """Return the steps, each from when the GPU reached it to when it reached the next."""
    waiting = {
        "data_wait": parts.data if trace.annotated(FETCH).any() else None,
        "h2d": parts.h2d,
        "communication": parts.communication,
        "sync": parts.sync,
    }
    passes = pass_of(work.asked, host, steps)
    # Idle time before queued work belongs to the pass of that work; before a late launch, to the pass the host was in.
    next_passes = np.append(passes, OTHER)[np.searchsorted(work.start, parts.other.end, "left")]
    host_passes = passes_of(host, steps, union(steps.host[:1], steps.host[-1:]))
    remaining, computing = parts.running, {}
    for name, number in PASSES.items():
        pass_time = remaining & work.spans(passes == number)
        remaining -= pass_time
        computing[name] = pass_time | parts.other.where(next_passes == number) | (parts.launch & host_passes[name])
    rows = _rows(trace, host, steps, steps.reached, waiting, computing)
    launch_times = _asking(work, host, steps)
    return tuple(replace(row, host_launch=float(seconds)) for row, seconds in zip(rows, launch_times, strict=False))


def steps_on_host(trace: Trace, host: HostActivity, steps: Steps) -> tuple[Step, ...]:
    """Return the steps, each from its mark to the next."""
    single = trace.annotated(SINGLE)
    data = trace.ranges.spans(single)
    rest = union(steps.host[:-1], steps.host[1:]) - data
    waiting: dict[str, Spans | None] = {"data_wait": data if single.any() else None}
    return _rows(trace, host, steps, steps.host, waiting, passes_of(host, steps, rest))


def passes_of(host: HostActivity, steps: Steps, time: Spans) -> dict[str, Spans]:
    """Return when the host was in backward passes, forward passes and updates, within `time`."""
    updates = time & host.updates
    rest = time - updates
    backward = rest & host.backward
    before_backward = union(steps.host[:-1], _last_backward(host, steps))
    return {
        "backward": backward,
        "forward": (rest - backward) & before_backward,
        "optimizer": updates,
    }


def _asking(work: GpuWork, host: HostActivity, steps: Steps) -> npt.NDArray[np.float64]:
    """Return the seconds until the host had launched all work of each step.

    Fetching and waiting for the GPU are left out. The host waits for the GPU if it waits for a result, or if a launch
    waits for room in a full queue.
    """
    launched_work = work.where(work.launched)
    is_slow = launched_work.call_end - launched_work.call_start > SLOW_CALL
    idle = host.fetches | host.waits | union(launched_work.call_start[is_slow], launched_work.call_end[is_slow])
    last_launch = np.zeros(len(steps.host) - 1, np.int64)
    step = np.searchsorted(steps.host, launched_work.call_start, "right") - 1
    is_inside = (step >= 0) & (step < len(last_launch))
    np.maximum.at(last_launch, step[is_inside], launched_work.call_end[is_inside])
    begin = steps.host[:-1]
    end = np.clip(last_launch, begin, steps.host[1:])
    return (end - begin - (idle.covered(end) - idle.covered(begin))) * 1e-9


def _rows(
    trace: Trace,
    host: HostActivity,
    steps: Steps,
    bounds: Integers,
    waiting: dict[str, Spans | None],
    computing: dict[str, Spans],
) -> tuple[Step, ...]:
    if not steps.marked:
        return ()
    if not len(host.backward):
        computing = {"optimizer": updates} if len(updates := computing["optimizer"]) else {}
    phases: dict[str, Any] = {
        name: np.diff(phase.covered(bounds)) * 1e-9
        for name, phase in (waiting | computing).items()
        if phase is not None
    }
    durations = np.diff(bounds) * 1e-9
    other = durations - sum(phases.values(), np.zeros(len(durations)))
    fetch_starts = trace.ranges.start[trace.annotated(FETCH)]
    batches = np.diff(np.searchsorted(fetch_starts, steps.host))
    fetch_times = np.diff(host.fetches.covered(steps.host)) * 1e-9
    return tuple(
        Step(
            pid=PID,
            index=number,
            start=float(bounds[index]) * 1e-9,
            duration=float(durations[index]),
            batches=float(batches[index]),
            fetch_host=float(fetch_times[index]) if len(fetch_starts) else None,
            other=max(0.0, float(other[index])),
            **{name: float(phase[index]) for name, phase in phases.items()},  # type: ignore[arg-type]
        )
        for index, number in enumerate(numbers(trace, steps))
    )


def pass_of(moments: Integers, host: HostActivity, steps: Steps) -> Integers:
    """Return the pass to which work launched at each moment belongs."""
    step = np.clip(np.searchsorted(steps.host, moments, "right") - 1, 0, len(steps.host) - 2)
    passes = np.where(moments < _last_backward(host, steps)[step], FORWARD, OTHER)
    passes[host.backward.covers(moments)] = BACKWARD
    passes[host.updates.covers(moments)] = OPTIMIZER
    return passes


def _last_backward(host: HostActivity, steps: Steps) -> Integers:
    """Return the start of the last backward range that begins in each step; the step's start if none does."""
    starts = host.backward.start
    index = np.searchsorted(starts, steps.host[1:], "left") - 1
    last = np.concatenate((starts, [0]))[index]
    return np.where((index >= 0) & (last >= steps.host[:-1]), last, steps.host[:-1])
