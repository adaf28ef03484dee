"""What made the host wait for the GPU, and how long the GPU was idle because of it."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from profiler.importers.columns import OPERATOR
from profiler.importers.gpu_time import Shares
from profiler.importers.intervals import Integers, around
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
    sums: dict[tuple[str, str], list[int]] = defaultdict(list)
    for call, cause, operator in _causes(trace, work, np.array(sorted(idle), np.int64)):
        sums[cause, operator].append(idle[call])
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
    operator_names = set(operators)
    if any(name.startswith(_OUTSIDE) for name in operators):
        return "collective"
    if "aten::_local_scalar_dense" in operator_names or "aten::item" in operator_names:
        if before == _UNSCALE:
            return "grad_scaler"
        return "branch" if "aten::is_nonzero" in operator_names else "item"
    if operator_names & _SHAPED_BY_DATA:
        return "shape"
    if operator_names & {"aten::copy_", "aten::_to_copy", "aten::to"} or "emcpy" in call:
        return {"HtoD": "copy_in", "DtoH": "copy_out"}.get(direction, "other")
    return "synchronize" if not operators and "ynchronize" in call else "other"


def _idle_by_call(trace: Trace, work: GpuWork, host: HostActivity, parts: Shares) -> dict[int, int]:
    """Return the nanoseconds in which the GPU was idle, by the waiting call's position in the trace."""
    order = np.argsort(trace.ranges.start[host.calls], kind="stable")
    calls = host.calls[order]
    starts, ends = trace.ranges.start[calls].tolist(), trace.ranges.end[calls].tolist()
    busy_ends = work.spans().end
    idle: dict[int, int] = defaultdict(int)
    for start, end in zip(parts.sync.start.tolist(), parts.sync.end.tolist(), strict=True):
        busy_end = int(busy_ends[index - 1]) if (index := int(np.searchsorted(busy_ends, start, "right"))) else start
        for moment in (start, busy_end):
            index = bisect_right(starts, moment) - 1
            while index >= 0 and ends[index] < moment and moment - ends[index] < end - start:
                index -= 1  # a wait inside a longer one
            if index >= 0 and ends[index] >= moment:
                idle[int(calls[index])] += end - start
                break
    return idle


def _causes(trace: Trace, work: GpuWork, calls: Integers) -> Iterator[tuple[int, str, str]]:
    """Yield each call with the cause of its wait, and the innermost operator around it, or its own name."""
    ranges = trace.ranges
    is_shown = (ranges.category == OPERATOR) | trace.annotated(_OUTSIDE)
    copies = work.where((is_copy(trace, work, "HtoD") | is_copy(trace, work, "DtoH")) & work.launched)
    copies = copies.where(np.argsort(copies.call_start, kind="stable"))
    is_incoming = is_copy(trace, copies, "HtoD")
    for thread in np.unique(ranges.thread[calls]).tolist():
        waits, shown_rows = calls[ranges.thread[calls] == thread], np.flatnonzero(is_shown & (ranges.thread == thread))
        rows, thread_copies = np.concatenate((shown_rows, waits)), np.flatnonzero(copies.caller == thread)
        parents = around(ranges.thread[rows], ranges.start[rows], ranges.end[rows])
        outermost = shown_rows[parents[: len(shown_rows)] < 0]
        starts, copy_starts = ranges.start[outermost], copies.call_start[thread_copies]
        for position, call in enumerate(waits.tolist(), len(shown_rows)):
            chain, ancestor = [call], int(parents[position])
            while ancestor >= 0:
                chain += [rows[ancestor]] if ancestor < len(shown_rows) else []
                ancestor = int(parents[ancestor])
            name, *operators = (trace.names[ranges.name[row]] for row in chain)
            place = int(np.searchsorted(starts, ranges.start[chain[-1]], "left")) - 1
            previous = trace.names[ranges.name[outermost[place]]] if place >= 0 else ""
            last_copy = int(np.searchsorted(copy_starts, ranges.start[call], "right")) - 1
            direction = "" if last_copy < 0 else "HtoD" if is_incoming[thread_copies[last_copy]] else "DtoH"
            yield call, cause_of(name, operators, previous, direction), operators[0] if operators else name
