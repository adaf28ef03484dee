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
    operators, kernels, steps = shaped_gpu_operators(m)
    bandwidth = m[peak_rates].bandwidth
    if not bandwidth:
        raise Missing(f"The memory bandwidth of {m[device].name} is unknown", "Add it to advisor/models/gpus.py.")
    found = [
        (sum(one.total * part for one, part in parts), root, shape, parts)
        for root, shape in _roots(operators)
        if (parts := list(_parts(root, shape, operators))) and prod(shape) * root.calls
    ]
    if not found:
        return None
    seconds, root, shape, parts = max(found, key=lambda one: one[0])
    halved = root.dtype in ("bf16", "fp16") or any(one.name == "aten::copy_" for one, _ in parts)
    least = 2.0 * prod(shape) * (HALF if halved else WIDE) * root.calls
    fused = max(least / (TYPICAL["normalization"].memory * bandwidth), EMPTY_KERNEL * root.calls)
    return Unfused(
        calls=root.calls / steps,
        operators=sum((one.kernels or one.calls) * part for one, part in parts) / root.calls,
        bytes=sum((one.bytes or 0.0) * part for one, part in parts) / steps,
        least=least / steps,
        share=seconds / kernels,
        saved=max(0.0, 1 - fused / seconds) if seconds else 0.0,
        trained=any(one.phase == "backward" for one in operators),
        own=_OWN in root.path,
    )


@metric("1", "share of GPU time in normalizations that are not fused")
def unfused_norm_share(m: Metrics) -> float:
    """Share of GPU-busy time in RMS normalizations of forward passes that are computed operator by operator."""
    found = m[unfused_norm]
    return found.share if found else 0.0


def _roots(operators: list[Operator]) -> Iterator[tuple[Operator, tuple[int, ...]]]:
    """Yield the reciprocal square root of each normalization, and the normalized shape, whose mean is its input."""
    for root in operators:
        if root.name != "aten::rsqrt" or root.phase == "backward" or root.inputs[:1] == ((),) or not root.inputs:
            continue
        rows = root.inputs[0]
        means = {
            one.inputs[0]
            for one in operators
            if one.name == "aten::mean" and one.path == root.path and one.calls == root.calls and any(one.inputs)
        }
        shapes = [shape for shape in means if len(shape) > 1 and (*shape[:-1], 1) == rows and shape[-1] > 1]
        if len(shapes) == 1:
            yield root, shapes[0]


def _parts(root: Operator, shape: tuple[int, ...], operators: list[Operator]) -> Iterator[tuple[Operator, float]]:
    """Yield the operators of the normalization, each with the share of its calls that belongs to it.

    There is one call per root, except for copies, which may be two.
    """
    rows, weight = (*shape[:-1], 1), shape[-1:]
    for one in operators:
        if one.phase == "backward" or one.path[: len(root.path)] != root.path or not one.inputs:
            continue
        given = {each for each in one.inputs if each}
        if (
            (one.name in ("aten::rsqrt", "aten::add") and given == {rows})
            or (one.name in ("aten::mean", *_SQUARES) and given == {shape})
            or (one.name == "aten::mul" and given in ({shape, rows}, {shape, weight}))
            or (one.name == "aten::copy_" and given == {shape} and "aten::_to_copy" in one.path)
        ):
            most = 2 if one.name == "aten::copy_" else 1
            yield one, min(1.0, most * root.calls / one.calls)
