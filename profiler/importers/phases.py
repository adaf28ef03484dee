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
    asked = pass_of(work.asked, host, steps)
    # Idle time before queued work belongs to the pass of that work; before a late launch, to the pass the host was in.
    following = np.append(asked, OTHER)[np.searchsorted(work.start, parts.other.end, "left")]
    during = passes_of(host, steps, union(steps.host[:1], steps.host[-1:]))
    left, computing = parts.running, {}
    for name, number in PASSES.items():
        mine = left & work.spans(asked == number)
        left -= mine
        computing[name] = mine | parts.other.where(following == number) | (parts.launch & during[name])
    rows = _rows(trace, host, steps, steps.reached, waiting, computing)
    asking = _asking(work, host, steps)
    return tuple(replace(row, host_launch=float(each)) for row, each in zip(rows, asking, strict=False))


def steps_on_host(trace: Trace, host: HostActivity, steps: Steps) -> tuple[Step, ...]:
    """Return the steps, each from its mark to the next."""
    single = trace.annotated(SINGLE)
    data = trace.ranges.spans(single)
    rest = union(steps.host[:-1], steps.host[1:]) - data
    waiting: dict[str, Spans | None] = {"data_wait": data if single.any() else None}
    return _rows(trace, host, steps, steps.host, waiting, passes_of(host, steps, rest))


def passes_of(host: HostActivity, steps: Steps, time: Spans) -> dict[str, Spans]:
    """Return when the host was in backward passes, forward passes and updates, within `time`."""
    updating = time & host.updates
    rest = time - updating
    backward = rest & host.backward
    ahead = union(steps.host[:-1], _last_backward(host, steps))
    return {
        "backward": backward,
        "forward": (rest - backward) & ahead,
        "optimizer": updating,
    }


def _asking(work: GpuWork, host: HostActivity, steps: Steps) -> npt.NDArray[np.float64]:
    """Return the seconds until the host had launched all work of each step.

    Fetching and waiting for the GPU are left out. The host waits for the GPU if it waits for a result, or if a launch
    waits for room in a full queue.
    """
    known = work.where(work.launched)
    slow = known.call_end - known.call_start > SLOW_CALL
    idle = host.fetches | host.waits | union(known.call_start[slow], known.call_end[slow])
    last = np.zeros(len(steps.host) - 1, np.int64)
    step = np.searchsorted(steps.host, known.call_start, "right") - 1
    inside = (step >= 0) & (step < len(last))
    np.maximum.at(last, step[inside], known.call_end[inside])
    begin = steps.host[:-1]
    end = np.clip(last, begin, steps.host[1:])
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
        computing = {"optimizer": updating} if len(updating := computing["optimizer"]) else {}
    known: dict[str, Any] = {
        name: np.diff(each.covered(bounds)) * 1e-9 for name, each in (waiting | computing).items() if each is not None
    }
    durations = np.diff(bounds) * 1e-9
    other = durations - sum(known.values(), np.zeros(len(durations)))
    fetched = trace.ranges.start[trace.annotated(FETCH)]
    batches = np.diff(np.searchsorted(fetched, steps.host))
    in_fetch = np.diff(host.fetches.covered(steps.host)) * 1e-9
    return tuple(
        Step(
            pid=PID,
            index=number,
            start=float(bounds[index]) * 1e-9,
            duration=float(durations[index]),
            batches=float(batches[index]),
            fetch_host=float(in_fetch[index]) if len(fetched) else None,
            other=max(0.0, float(other[index])),
            **{name: float(each[index]) for name, each in known.items()},  # type: ignore[arg-type]
        )
        for index, number in enumerate(numbers(trace, steps))
    )


def pass_of(moments: Integers, host: HostActivity, steps: Steps) -> Integers:
    """Return the pass to which work launched at each moment belongs."""
    step = np.clip(np.searchsorted(steps.host, moments, "right") - 1, 0, len(steps.host) - 2)
    found = np.where(moments < _last_backward(host, steps)[step], FORWARD, OTHER)
    found[host.backward.covers(moments)] = BACKWARD
    found[host.updates.covers(moments)] = OPTIMIZER
    return found


def _last_backward(host: HostActivity, steps: Steps) -> Integers:
    """Return the start of the last backward range that begins in each step; the step's start if none does."""
    begins = host.backward.start
    at = np.searchsorted(begins, steps.host[1:], "left") - 1
    last = np.concatenate((begins, [0]))[at]
    return np.where((at >= 0) & (last >= steps.host[:-1]), last, steps.host[:-1])
