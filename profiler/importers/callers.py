"""Find what the host was running around each launch: the operator, and the ranges around that."""

from dataclasses import dataclass

import numpy as np

from profiler.importers.columns import MODULE, OPERATOR
from profiler.importers.intervals import Integers, around
from profiler.importers.kineto import Trace
from profiler.importers.work import GpuWork, is_backward

_NO_PLACE = ("ProfilerStep", "profile-train", "enumerate(DataLoader)", "nccl:", "gloo:")
"""Beginnings of annotations that say nothing about the place in the model, or that end on another thread."""


@dataclass(frozen=True, slots=True)
class Callers:
    """The ranges around launches, as positions among the trace's ranges; -1 for none."""

    operator: Integers
    """For each piece of work, the innermost operator around its launch."""
    outer: Integers
    """For each range of the trace, the innermost operator, annotation, module or launching call around it.

    Around a node of the backward pass it is what was around its operator of the forward pass.
    """


def callers(trace: Trace, work: GpuWork) -> Callers:
    """Return the callers of all the work."""
    ranges = trace.ranges
    category = ranges.category
    around_calls = np.flatnonzero((category <= MODULE) & ~trace.annotated(_NO_PLACE))
    rows = np.concatenate((around_calls, np.unique(work.call[work.launched])))
    # Ranges that start and end with what they contain come first: modules and annotations, then operators, then calls.
    places = np.array([2, 0, 1, 3])[category[rows]]
    rows = rows[np.argsort(places, kind="stable")]
    found = around(ranges.thread[rows], ranges.start[rows], ranges.end[rows])
    outer = np.full(len(ranges), -1)
    outer[rows] = np.where(found >= 0, rows[found], -1)
    operator = np.where(work.launched, outer[work.call], -1)
    while len(climbing := np.flatnonzero((operator >= 0) & (category[operator] != OPERATOR))):
        operator[climbing] = outer[operator[climbing]]
    return Callers(operator, _joined(trace, outer))


def _joined(trace: Trace, outer: Integers) -> Integers:
    """Return `outer` with the nodes of the backward pass inside the modules of the forward pass.

    Of operators with one number, the last to begin is the innermost. Autograd's own threads run none of them.
    """
    ranges = trace.ranges
    numbered = (ranges.category == OPERATOR) & (ranges.sequence >= 0)
    nodes = np.flatnonzero(numbered & trace.named(is_backward) & (outer < 0))
    forward = np.flatnonzero(numbered & ~np.isin(ranges.thread, np.unique(ranges.thread[nodes])))
    if not len(nodes) or not len(forward):
        return outer
    forward = forward[np.argsort(ranges.sequence[forward], kind="stable")]
    at = np.searchsorted(ranges.sequence[forward], ranges.sequence[nodes], "right") - 1
    known = (at >= 0) & (ranges.sequence[forward[at]] == ranges.sequence[nodes])
    place: Integers = outer[forward[at[known]]]
    while len(climbing := np.flatnonzero((place >= 0) & (ranges.category[place] == OPERATOR))):
        place[climbing] = outer[place[climbing]]
    joined: Integers = outer.copy()
    joined[nodes[known]] = place
    return joined
