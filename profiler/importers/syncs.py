"""What made the host wait for the GPU, and how long the GPU was idle because of it."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np

from profiler.importers.columns import OPERATOR
from profiler.importers.gpu_time import Shares
from profiler.importers.intervals import around
from profiler.importers.kineto import Trace
from profiler.importers.work import GpuWork, HostActivity, is_copy
from profiler.schema import Sync

_SHAPED_BY_DATA = frozenset(
    f"aten::{name}" for name in ("nonzero", "masked_select", "unique_dim", "unique_consecutive", "_unique2", "index")
)
"""Operators whose result shape depends on the data, so that the host has to wait for it."""
_OUTSIDE = ("gloo:", "c10d::")
_UNSCALE = "aten::_amp_foreach_non_finite_check_and_unscale_"


def syncs(trace: Trace, work: GpuWork, host: HostActivity, parts: Shares) -> tuple[Sync, ...]:
    """Return the waits that left the GPU idle, by cause and operator; most idle time first."""
    idle = _idle_by_call(trace, work, host, parts)
    if not idle:
        return ()
    chains = _chains(trace, sorted(idle))
    directions = _directions(trace, work, idle)
    sums: dict[tuple[str, str], list[int]] = defaultdict(list)
    for row, time in idle.items():
        operators, before = chains[row]
        call = trace.names[trace.ranges.name[row]]
        cause = cause_of(call, operators, before, directions[row])
        sums[cause, operators[0] if operators else call].append(time)
    rows = [
        Sync(pid=0, window=0, cause=cause, operator=operator, calls=len(times), idle=sum(times) * 1e-9)
        for (cause, operator), times in sums.items()
    ]
    return tuple(sorted(rows, key=lambda row: (-row.idle, row.cause, row.operator)))


def cause_of(call: str, operators: Sequence[str], before: str, direction: str) -> str:
    """Return why the host waited, as in `schema.Sync`.

    Args:
        call: The call of the CUDA runtime that waited.
        operators: The operators around it, innermost first.
        before: The outermost operator that the thread ran before these.
        direction: Direction of the thread's last copy before the call: "HtoD", "DtoH" or "".
    """
    inside = set(operators)
    if any(name.startswith(_OUTSIDE) for name in operators):
        return "collective"
    if "aten::_local_scalar_dense" in inside or "aten::item" in inside:
        if before == _UNSCALE:
            return "grad_scaler"
        return "branch" if "aten::is_nonzero" in inside else "item"
    if inside & _SHAPED_BY_DATA:
        return "shape"
    if inside & {"aten::copy_", "aten::_to_copy", "aten::to"} or "emcpy" in call:
        return {"HtoD": "copy_in", "DtoH": "copy_out"}.get(direction, "other")
    return "synchronize" if not operators and "ynchronize" in call else "other"


def _idle_by_call(trace: Trace, work: GpuWork, host: HostActivity, parts: Shares) -> dict[int, int]:
    """Return the nanoseconds in which the GPU was idle, by the waiting call's position in the trace."""
    order = np.argsort(trace.ranges.start[host.calls], kind="stable")
    calls = host.calls[order]
    starts, ends = trace.ranges.start[calls].tolist(), trace.ranges.end[calls].tolist()
    done = work.spans().end
    idle: dict[int, int] = defaultdict(int)
    for start, end in zip(parts.sync.start.tolist(), parts.sync.end.tolist(), strict=True):
        dry = int(done[at - 1]) if (at := int(np.searchsorted(done, start, "right"))) else start
        for moment in (start, dry):
            at = bisect_right(starts, moment) - 1
            while at >= 0 and ends[at] < moment and moment - ends[at] < end - start:
                at -= 1  # a wait inside a longer one
            if at >= 0 and ends[at] >= moment:
                idle[int(calls[at])] += end - start
                break
    return idle


def _chains(trace: Trace, calls: Sequence[int]) -> dict[int, tuple[tuple[str, ...], str]]:
    """Return for each call the operators around it, innermost first, and the outermost that ended before them."""
    ranges = trace.ranges
    threads = np.unique(ranges.thread[list(calls)])
    near = np.isin(ranges.thread, threads) & ((ranges.category == OPERATOR) | trace.annotated(_OUTSIDE))
    rows = np.concatenate((np.flatnonzero(near), np.array(calls)))
    outer = around(ranges.thread[rows], ranges.start[rows], ranges.end[rows])
    number = len(rows) - len(calls)
    top = np.flatnonzero(outer[:number] < 0)
    begun = {int(each): rows[top[ranges.thread[rows[top]] == each]] for each in threads}
    starts = {each: ranges.start[at] for each, at in begun.items()}
    found = {}
    for position, call in enumerate(calls, number):
        names, at = [], int(outer[position])
        last = position
        while at >= 0:
            if at < number:
                names.append(trace.names[ranges.name[rows[at]]])
                last = at
            at = int(outer[at])
        thread = int(ranges.thread[call])
        place = int(np.searchsorted(starts[thread], ranges.start[rows[last]], "left")) - 1
        before = trace.names[ranges.name[begun[thread][place]]] if place >= 0 else ""
        found[call] = tuple(names), before
    return found


def _directions(trace: Trace, work: GpuWork, calls: Iterable[int]) -> dict[int, str]:
    """Return for each call the direction of the last copy that its thread asked for before, or "" if there is none."""
    incoming = is_copy(trace, work, "HtoD") & work.launched
    known = np.flatnonzero(incoming | (is_copy(trace, work, "DtoH") & work.launched))
    known = known[np.argsort(work.call_start[known], kind="stable")]
    begun, found = work.call_start[known], {}
    for call in calls:
        at = int(np.searchsorted(begun, trace.ranges.start[call], "right")) - 1
        while at >= 0 and work.caller[known[at]] != trace.ranges.thread[call]:
            at -= 1
        found[call] = "" if at < 0 else "HtoD" if incoming[known[at]] else "DtoH"
    return found
