"""RMS normalizations that are computed operator by operator, from the operator table."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from advisor.metrics.base import Metrics, Missing, metric
from advisor.metrics.gpu import device
from advisor.metrics.operators import shaped_gpu_operators
from advisor.metrics.peaks import peak_rates
from advisor.models.roofline import EMPTY_KERNEL, TYPICAL
from profiler.schema import Operator

_SQUARES = ("aten::pow", "aten::square", "aten::mul")
_OWN = "aten::rms_norm"
"""Operator of torch that, before 2.9, calls the others one by one."""
HALF = 2
"""Bytes of an element that is cast to fp32 for the normalization."""
WIDE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfused:
    """Normalizations of one shape that are computed operator by operator, in forward passes."""

    calls: float
    """Normalizations per step."""
    operators: float
    """Kernels per normalization."""
    bytes: float
    """Bytes that they move per step."""
    least: float
    """Bytes per step that a fused kernel moves."""
    share: float
    """Share of the time of computing kernels."""
    saved: float
    """Share of that time that one kernel of typical speed saves."""
    trained: bool
    """Whether a backward pass was recorded; these figures do not include it."""
    own: bool
    """Whether torch's own operator calls them."""


@metric(None)
def unfused_norm(m: Metrics) -> Unfused | None:
    """RMS normalizations computed operator by operator that take the most time; None if there are none."""
    operators, kernel_seconds, steps = shaped_gpu_operators(m)
    bandwidth = m[peak_rates].bandwidth
    if not bandwidth:
        raise Missing(f"The memory bandwidth of {m[device].name} is unknown", "Add it to advisor/models/gpus.py.")
    norms = [
        (sum(row.total * share for row, share in parts), root, shape, parts)
        for root, shape in _roots(operators)
        if (parts := list(_parts(root, shape, operators))) and prod(shape) * root.calls
    ]
    if not norms:
        return None
    seconds, root, shape, parts = max(norms, key=lambda row: row[0])
    halved = root.dtype in ("bf16", "fp16") or any(row.name == "aten::copy_" for row, _ in parts)
    least = 2.0 * prod(shape) * (HALF if halved else WIDE) * root.calls
    fused_seconds = max(least / (TYPICAL["normalization"].memory * bandwidth), EMPTY_KERNEL * root.calls)
    return Unfused(
        calls=root.calls / steps,
        operators=sum((row.kernels or row.calls) * share for row, share in parts) / root.calls,
        bytes=sum((row.bytes or 0.0) * share for row, share in parts) / steps,
        least=least / steps,
        share=seconds / kernel_seconds,
        saved=max(0.0, 1 - fused_seconds / seconds) if seconds else 0.0,
        trained=any(row.phase == "backward" for row in operators),
        own=_OWN in root.path,
    )


@metric("1", "share of GPU time in normalizations that are not fused")
def unfused_norm_share(m: Metrics) -> float:
    """Share of GPU-busy time in RMS normalizations of forward passes that are computed operator by operator."""
    norm = m[unfused_norm]
    return norm.share if norm else 0.0


def _roots(operators: list[Operator]) -> Iterator[tuple[Operator, tuple[int, ...]]]:
    """Yield the reciprocal square root of each normalization, and the shape that is normalized.

    The input of the root is the mean over that shape's last dimension.
    """
    for root in operators:
        if root.name != "aten::rsqrt" or root.phase == "backward" or root.inputs[:1] == ((),) or not root.inputs:
            continue
        rows = root.inputs[0]
        means = {
            operator.inputs[0]
            for operator in operators
            if operator.name == "aten::mean"
            and operator.path == root.path
            and operator.calls == root.calls
            and any(operator.inputs)
        }
        shapes = [shape for shape in means if len(shape) > 1 and (*shape[:-1], 1) == rows and shape[-1] > 1]
        if len(shapes) == 1:
            yield root, shapes[0]


def _parts(root: Operator, shape: tuple[int, ...], operators: list[Operator]) -> Iterator[tuple[Operator, float]]:
    """Yield the operators of the normalization, each with the share of its calls that belongs to it.

    There is one call per root, except for copies, which may be two.
    """
    rows, weight = (*shape[:-1], 1), shape[-1:]
    for operator in operators:
        if operator.phase == "backward" or operator.path[: len(root.path)] != root.path or not operator.inputs:
            continue
        shapes = {size for size in operator.inputs if size}
        if (
            (operator.name in ("aten::rsqrt", "aten::add") and shapes == {rows})
            or (operator.name in ("aten::mean", *_SQUARES) and shapes == {shape})
            or (operator.name == "aten::mul" and shapes in ({shape, rows}, {shape, weight}))
            or (operator.name == "aten::copy_" and shapes == {shape} and "aten::_to_copy" in operator.path)
        ):
            calls_per_root = 2 if operator.name == "aten::copy_" else 1
            yield operator, min(1.0, calls_per_root * root.calls / operator.calls)
