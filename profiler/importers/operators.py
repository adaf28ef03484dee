"""The operator table: the GPU work that each operator launched, its place in the model, time, operations and bytes.

Each piece of GPU work belongs to the innermost operator around its launch. Work that no operator launched is listed by
the name of its kernel.
"""

import re
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from profiler.importers.arithmetic import NOTHING, Call, parse, work_of_call
from profiler.importers.columns import CALL, MODULE, MODULE_PREFIX, OPERATOR, Numbers
from profiler.importers.gpu_time import Shares
from profiler.importers.intervals import Groups, Integers, around
from profiler.importers.kernel_kinds import kernel_kind, operator_kind
from profiler.importers.kineto import Trace
from profiler.importers.phases import OPTIMIZER, PASSES, pass_of
from profiler.importers.steps import Steps
from profiler.importers.tables import MAY_BE_OPTIMIZER, PID, own_times, shown
from profiler.importers.work import GpuWork, HostActivity, is_backward
from profiler.schema import REST, Operator

MOST = 200
"""Maximum rows of the table; the last one sums up the rest.

For a transformer, this covers all operators that take at least a thousandth of the time.
"""
DEEPEST = 16
"""Maximum ranges in a path; a deeper path keeps the innermost."""
PLACE_LENGTH = 80
"""Maximum characters of a range's name in a path."""

_PHASES = {number: name for name, number in PASSES.items()}
_NUMBER = re.compile(r"[\s_#:.]*\d+$")
_NO_PLACE = ("ProfilerStep", "profile-train", "enumerate(DataLoader)", "nccl:", "gloo:")
"""Prefixes of annotations that do not show a place in the model, or that end on another thread."""
_ENGINE = "autograd::engine::evaluate_function"
"""Prefix of a range that only repeats the name of the range inside it."""


@dataclass(frozen=True, slots=True)
class Callers:
    """The ranges around launches, as positions among the trace's ranges; -1 for none."""

    operator: Integers
    """For each piece of work, the innermost operator around its launch."""
    outer: Integers
    """For each range of the trace, the innermost operator, annotation, module or launching call around it.

    For a node of the backward pass, it is the range around the matching operator of the forward pass.
    """


def callers(trace: Trace, work: GpuWork) -> Callers:
    """Return the callers of all the work."""
    ranges = trace.ranges
    category = ranges.category
    outer_rows = np.flatnonzero((category <= MODULE) & ~trace.annotated(_NO_PLACE))
    rows = np.concatenate((outer_rows, np.unique(work.call[work.launched])))
    # If ranges have the same start and end, the outer one comes first: annotations, modules, operators, then calls.
    precedence = np.array([2, 0, 1, 3])[category[rows]]
    rows = rows[np.argsort(precedence, kind="stable")]
    parents = around(ranges.thread[rows], ranges.start[rows], ranges.end[rows])
    outer = np.full(len(ranges), -1)
    outer[rows] = np.where(parents >= 0, rows[parents], -1)
    operator = np.where(work.launched, outer[work.call], -1)
    while len(climbers := np.flatnonzero((operator >= 0) & (category[operator] != OPERATOR))):
        operator[climbers] = outer[operator[climbers]]
    return Callers(operator, _joined(trace, outer))


def _joined(trace: Trace, outer: Integers) -> Integers:
    """Return `outer` with the nodes of the backward pass inside the modules of the forward pass.

    If operators share a sequence number, the last to begin is the innermost. Autograd's own threads run no operators of
    the forward pass.
    """
    ranges = trace.ranges
    is_numbered = (ranges.category == OPERATOR) & (ranges.sequence >= 0)
    nodes = np.flatnonzero(is_numbered & trace.named(is_backward) & (outer < 0))
    forward = np.flatnonzero(is_numbered & ~np.isin(ranges.thread, np.unique(ranges.thread[nodes])))
    if not len(nodes) or not len(forward):
        return outer
    forward = forward[np.argsort(ranges.sequence[forward], kind="stable")]
    index = np.searchsorted(ranges.sequence[forward], ranges.sequence[nodes], "right") - 1
    has_forward = (index >= 0) & (ranges.sequence[forward[index]] == ranges.sequence[nodes])
    ancestor: Integers = outer[forward[index[has_forward]]]
    while len(climbers := np.flatnonzero((ancestor >= 0) & (ranges.category[ancestor] == OPERATOR))):
        ancestor[climbers] = outer[ancestor[climbers]]
    result: Integers = outer.copy()
    result[nodes[has_forward]] = ancestor
    return result


def on_gpu(
    trace: Trace, inside: GpuWork, host: HostActivity, calling: Callers, parts: Shares, steps: Steps
) -> tuple[Operator, ...]:
    """Return the operators that launched the steps' GPU work, by name, inputs, place and phase; most time first."""
    operator = calling.operator
    has_operator, ranges = operator >= 0, trace.ranges
    numbers, calls = _alike(trace)
    places = _Paths(trace, calling.outer)
    keys = (
        np.where(has_operator, ranges.name[operator], -1 - inside.name),  # names of kernels are negative
        np.where(has_operator, numbers[ranges.inputs[operator]], -1),
        places.of(np.where(has_operator, operator, inside.call)),
        pass_of(inside.asked, host, steps) if len(host.backward) else np.full(len(inside), -1),
    )
    groups = Groups(*keys)
    # The first piece that a call of an operator launched stands for the call.
    first_pieces = np.unique(np.where(has_operator, operator, -1 - np.arange(len(inside))), return_index=True)[1]
    total, kernels, call_counts = groups.seconds(inside.length), groups.count(), groups.count(first_pieces)
    calling_time = groups.seconds(ranges.length[operator[first_pieces]], first_pieces)
    gaps, runs = groups.seconds(_gaps(inside, parts)), groups.count(_run_starts(inside.asked, groups.of))
    top_kernels = _dearest(inside, groups.of)
    order = np.lexsort((np.arange(len(groups)), -total))
    kept_groups = order if len(groups) <= MOST else order[: MOST - 1]
    rows = []
    for group in kept_groups.tolist():
        name, inputs, place, phase = (int(column[groups.first[group]]) for column in keys)
        call, kernel = calls[inputs] if inputs >= 0 else None, trace.names[top_kernels[group]]
        classification = kernel_kind(kernel)
        in_optimizer = phase == OPTIMIZER and classification.kind in MAY_BE_OPTIMIZER
        rows.append(
            _row(
                trace.names[name if name >= 0 else -1 - name],
                call,
                int(call_counts[group]),
                float(total[group]),
                device="cuda",
                kind="optimizer" if in_optimizer else classification.kind,
                phase=_PHASES.get(phase),
                path=places.names(place),
                kernels=int(kernels[group]),
                kernel=shown(kernel),
                arithmetic=classification.dtype or (call.dtype if call else None),
                host=float(calling_time[group]) if name >= 0 else None,
                gap=float(gaps[group]),
                run=float(call_counts[group] / runs[group]),
            )
        )
    if len(other_groups := order[len(kept_groups) :]):
        sums = {"kernels": int(kernels[other_groups].sum()), "gap": float(gaps[other_groups].sum())}
        rows.append(
            _row(
                REST,
                None,
                int(call_counts[other_groups].sum()),
                float(total[other_groups].sum()),
                device="cuda",
                **sums,
            )
        )
    return tuple(rows)


def on_host(trace: Trace, steps: Steps) -> tuple[Operator, ...]:
    """Return the operators by their own time, for a trace without GPU work that recorded shapes; most time first."""
    if not trace.inputs:
        return ()
    rows, times = own_times(trace, steps)
    inputs = trace.ranges.inputs[rows]
    rows, times, inputs = rows[inputs >= 0], times[inputs >= 0], inputs[inputs >= 0]
    numbers, calls = _alike(trace)
    groups = Groups(trace.ranges.name[rows], numbers[inputs])
    count, total = groups.count(), groups.seconds(times)
    operators = []
    for group in np.lexsort((np.arange(len(groups)), -total)).tolist():
        first = groups.first[group]
        name, call = trace.names[trace.ranges.name[rows[first]]], calls[numbers[inputs[first]]]
        row = _row(name, call, int(count[group]), float(total[group]), device="cpu", kind=operator_kind(name))
        if any(row.inputs):
            operators.append(replace(row, arithmetic=row.dtype))
    return tuple(operators[:MOST])


def _row(name: str, call: Call | None, calls: int, total: float, **more: Any) -> Operator:
    work = NOTHING if call is None else work_of_call(name, call)
    return Operator(
        pid=PID,
        window=0,
        name=shown(name),
        inputs=() if call is None else tuple(tensors[0].shape if len(tensors) == 1 else () for tensors in call.tensors),
        dtype=None if call is None else call.dtype,
        calls=calls,
        total=total,
        flop=None if work.flop is None else work.flop * calls,
        bytes=None if work.bytes is None else work.bytes * calls,
        **more,
    )


def _alike(trace: Trace) -> tuple[Integers, list[Call]]:
    """Return a number for each of the trace's inputs, the same for equal inputs, and the calls by number."""
    numbers = Numbers()
    indices = [numbers[parse(*arguments)] for arguments in trace.inputs]
    return np.array([*indices, -1], np.int64), list(numbers)  # the last is for ranges without inputs


def _gaps(work: GpuWork, parts: Shares) -> Integers:
    """Return for each piece of work how long the GPU was idle before it because its launch came late."""
    gaps = np.zeros(len(work) + 1, np.int64)
    np.add.at(gaps, np.searchsorted(work.start, parts.launch.end, "left"), parts.launch.length)
    return gaps[:-1]


def _run_starts(asked: Integers, group: Integers) -> Integers:
    """Return the first of each run of launches that belong to the same group."""
    order = np.argsort(asked, kind="stable")
    return np.asarray(order[np.append(True, np.diff(group[order]) != 0)[: len(order)]])


def _dearest(work: GpuWork, group: Integers) -> list[int]:
    """Return for each group the name that takes most of its time."""
    kernels = Groups(group, work.name)
    order = np.lexsort((kernels.seconds(work.length), group[kernels.first]))
    is_last = np.append(np.diff(group[kernels.first[order]]) > 0, True)
    return [int(name) for name in work.name[kernels.first[order[is_last]]]]


class _Paths:
    """The paths of ranges: the names around each, outermost first, each path stored once."""

    def __init__(self, trace: Trace, outer: Integers) -> None:
        self._trace = trace
        self._outer = np.append(outer, -1)
        self._paths = Numbers({(0, ""): 0})
        """Number of each path, by the number of the path around it and its last name; path 0 is empty."""

    def of(self, rows: Integers) -> Integers:
        """Return the number of the path around each range; 0, the empty path, for -1."""
        innermost, inverse = np.unique(self._outer[rows], return_inverse=True)
        levels, frontier = [innermost[innermost >= 0]], innermost
        while len(frontier := np.unique(self._outer[frontier[frontier >= 0]])) and frontier[-1] >= 0:
            levels.append(frontier[frontier >= 0])
        number = np.zeros(len(self._outer), np.int64)
        # A range may be in several levels: its path is correct once all ranges around it have theirs.
        for level in reversed(levels):
            ranges = self._trace.ranges
            keys = number[self._outer[level]], ranges.category[level], ranges.name[level]
            groups = Groups(*keys)
            paths = [self._inside(*(int(column[row]) for column in keys)) for row in groups.first]
            number[level] = np.array(paths, np.int64)[groups.of]
        return np.asarray(number[innermost][inverse.reshape(-1)])

    def names(self, number: int) -> tuple[str, ...]:
        """Return the path with this number; of a deep path, the innermost names."""
        names, paths = list[str](), list(self._paths)
        while number and len(names) < DEEPEST:
            number, name = paths[number]
            names.append(name)
        return tuple(reversed(names))

    def _inside(self, around: int, category: int, name: int) -> int:
        """Return the number of the path extended by one range."""
        label = _label(category, self._trace.names[name])
        return self._paths[around, label] if label else around


def _label(category: int, name: str) -> str:
    """Return the name of a range in a path, without its instance number."""
    if category == CALL or (category == OPERATOR and name.startswith(_ENGINE)):
        return ""
    bare = name if category == OPERATOR else _NUMBER.sub("", name.removeprefix(MODULE_PREFIX))
    return shown(bare)[:PLACE_LENGTH]
