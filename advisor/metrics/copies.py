"""Copies on the GPU that an operator makes for its own use, from the operator table."""

from collections.abc import Callable
from dataclasses import dataclass

from advisor.metrics.base import Metrics, Missing, metric
from advisor.metrics.gpu import gpu_computing_fraction, launch_bound_index
from advisor.metrics.operators import gpu_operators
from profiler.grouping import totals
from profiler.schema import Operator

_COPY = "aten::copy_"
_LAYOUT = frozenset({"aten::contiguous", "aten::clone", "aten::reshape"})
_REDUCER = "torch.distributed.ddp.reducer::copy_bucket_to_grad"
"""Range that torch's reducer records for each gradient, unless gradients are views of its buckets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Copies:
    """Copies of one purpose, per step."""

    calls: float
    seconds: float
    """Seconds of their kernels."""
    late: float
    """Share of the GPU's idle time from late launches that they cause."""
    share: float
    """Share of the time of computing kernels."""
    place: str
    """The module that most of the time is spent in; empty if none is known."""


@metric(None)
def layout_copies(m: Metrics) -> Copies:
    """Copies that only change the order of a tensor's elements in memory: `contiguous()`, and `reshape()` that cannot
    return a view. A copy whose source and result have the same order is a clone and does not count.
    """
    return _copies(m, lambda operator: bool(_LAYOUT & set(operator.path)) and not operator.kernel.startswith("Mem"))


@metric("1", "share of GPU time copying tensors into another layout")
def layout_copy_share(m: Metrics) -> float:
    """Share of GPU-busy time in copies that only change the order of a tensor's elements in memory."""
    return m[layout_copies].share


@metric(None)
def gradient_copies(m: Metrics) -> Copies:
    """Copies of reduced gradients from DistributedDataParallel's buckets."""
    return _copies(m, lambda operator: _REDUCER in operator.path)


@metric("1", "share of the step copying gradients from buckets")
def gradient_copy_fraction(m: Metrics) -> float:
    """Share of the step in which DistributedDataParallel copies reduced gradients from its buckets, or in which the GPU
    is idle because these copies are launched late.
    """
    copies = m[gradient_copies]
    return copies.share * m[gpu_computing_fraction] + copies.late * m[launch_bound_index]


def _copies(m: Metrics, wanted: Callable[[Operator], bool]) -> Copies:
    """Return the copies of the primary rank's profiler windows that are wanted."""
    operators, kernel_seconds, steps = gpu_operators(m)
    if not operators or not kernel_seconds or not steps:
        raise Missing("No operator on a GPU was recorded", "Run on a GPU, for long enough to open a profiler window.")
    copies = [operator for operator in operators if operator.name == _COPY and wanted(operator)]
    seconds = sum(operator.total for operator in copies)
    places = totals(copies, lambda operator: next((name for name in reversed(operator.path) if "::" not in name), ""))
    return Copies(
        calls=sum(operator.calls for operator in copies) / steps,
        seconds=seconds / steps,
        late=sum(operator.gap or 0.0 for operator in copies)
        / (sum(operator.gap or 0.0 for operator in operators) or 1.0),
        share=seconds / kernel_seconds,
        place=max(places, key=lambda name: (places[name], name), default=""),
    )
