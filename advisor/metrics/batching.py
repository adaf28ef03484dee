"""Matmuls that one call could compute together, from the operator table."""

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from advisor.metrics.base import Metrics, metric
from advisor.metrics.gpu import device
from advisor.metrics.operators import Product, product_of, shaped_gpu_operators
from advisor.metrics.peaks import peak_rates
from advisor.models.gpus import Peaks
from advisor.models.roofline import EMPTY_KERNEL, roofline
from profiler.schema import Operator

INDEPENDENT = 4
"""Minimum number of calls in a row that one call could compute: query, key and value are only three (assumption)."""
CHAINED = 8
"""The same if each result could be the next call's input: layers have activations in between (assumption)."""
GROUPS = 8
"""Different numbers of rows for one weight size from which they count as experts: Mixtral has eight."""
_EXPERTS = re.compile(r"moe|expert", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batchable:
    """Matmuls that one call could compute together, per step."""

    calls: float
    together: float
    """Mean number of them that one call would compute."""
    size: str
    """Size of the matmuls that take most of the time."""
    experts: bool
    """Whether these are experts of a mixture, each with its own number of rows."""
    share: float
    """Share of the time of computing kernels."""
    saved: float
    """Share of their own time that is saved if the call is as fast as matmuls typically are."""
    late: float
    """Share of the GPU's idle time from late launches that goes away with the calls that are saved."""


@metric(None)
def batchable(m: Metrics) -> Batchable | None:
    """Small matmuls that one call could compute together; None if there are none."""
    operators, kernel_seconds, steps = shaped_gpu_operators(m)
    products = [
        (operator, product) for operator in operators if operator.kind == "matmul" and (product := product_of(operator))
    ]
    candidates = [*_in_a_row(products), *_experts(products, steps)]
    seconds = sum(operator.total for operator, _, _, _ in candidates)
    if not seconds:
        return None
    saved_seconds = sum(
        _saved(operator, together, m[peak_rates], m[device].is_amd) for operator, _, together, _ in candidates
    )
    _, product, _, experts = max(candidates, key=lambda candidate: candidate[0].total)
    gaps = sum(operator.gap or 0.0 for operator in operators)
    calls = sum(operator.calls for operator, _, _, _ in candidates)
    return Batchable(
        calls=calls / steps,
        together=calls / sum(operator.calls / together for operator, _, together, _ in candidates),
        size=f"({product.rows} x {product.inner}) by ({product.inner} x {product.columns})",
        experts=experts,
        share=seconds / kernel_seconds,
        saved=saved_seconds / seconds,
        late=sum((operator.gap or 0.0) * (1 - 1 / together) for operator, _, together, _ in candidates) / gaps
        if gaps
        else 0.0,
    )


@metric("1", "share of GPU time in matmuls that could be batched")
def batchable_share(m: Metrics) -> float:
    """Share of GPU-busy time in small matmuls that one call could compute together."""
    matmuls = m[batchable]
    return matmuls.share if matmuls else 0.0


def _saved(one: Operator, together: float, peaks: Peaks, is_amd: bool) -> float:
    """Return the seconds saved if `together` calls were one call that is as fast as matmuls typically are."""
    kernels = (one.kernels or one.calls) / together
    comparison = roofline(
        kind="matmul",
        arithmetic=one.arithmetic,
        seconds=one.total,
        kernels=kernels,
        flop=one.flop,
        moved=one.bytes,
        peaks=peaks,
        amd=is_amd,
    )
    return max(0.0, one.total - EMPTY_KERNEL * kernels) if comparison.bound == "latency" else comparison.gain or 0.0


_Found = tuple[Operator, Product, float, bool]


def _in_a_row(products: list[tuple[Operator, Product]]) -> Iterator[_Found]:
    """Yield matmuls of one size that were launched one after the other, with the number that one call would compute."""
    for operator, product in products:
        rows, columns, inner = product.lengths
        limit = CHAINED if inner in (rows, columns) else INDEPENDENT
        if (operator.run or 0.0) >= limit:
            yield operator, product, operator.run or 1.0, False


def _experts(products: list[tuple[Operator, Product]], steps: float) -> Iterator[_Found]:
    """Yield the matmuls of a mixture's experts: weights of one size, each with its own number of rows."""
    groups = defaultdict(list)
    for operator, product in products:
        if product.batch == 1 and (operator.run or 0.0) < INDEPENDENT and any(map(_EXPERTS.search, operator.path)):
            groups[operator.name, operator.path, operator.phase, product.inner, product.columns].append(
                (operator, product)
            )
    for group in groups.values():
        number = len({product.rows for _, product in group}) / steps
        if number >= GROUPS:
            yield from ((operator, product, number, True) for operator, product in group)
