"""Operators by the shapes of their inputs, of the profiler windows that recorded them."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Literal

from advisor.metrics.base import Metrics, Missing, metric
from advisor.metrics.settings import primary_rank
from profiler.schema import Operator


@dataclass(frozen=True, slots=True, kw_only=True)
class Shaped:
    """What the windows with shapes hold."""

    device: Literal["cpu", "cuda"]
    operators: tuple[Operator, ...]
    seconds: float
    """Of all kernels of these windows; on a CPU of all operators, each by itself."""
    steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """Matrix products of one size and dtype: `batch` times (rows x inner) by (inner x columns)."""

    batch: int
    rows: int
    columns: int
    inner: int
    dtype: str | None
    calls: int
    seconds: float
    """Of all calls."""

    @property
    def lengths(self) -> tuple[int, int, int]:
        """Without the batch."""
        return self.rows, self.columns, self.inner

    @property
    def flop(self) -> float:
        """Floating-point operations of a call: a multiplication and an addition for each term."""
        return 2.0 * self.batch * prod(self.lengths)

    @property
    def intensity(self) -> float:
        """Operations for each number that is read or written."""
        rows, columns, inner = self.lengths
        return 2 * prod(self.lengths) / (rows * inner + inner * columns + rows * columns)


# The argument at which an operator's two matrices begin.
_FIRST_MATRIX = {
    "aten::mm": 0,
    "aten::bmm": 0,
    "aten::_scaled_mm": 0,
    "aten::addmm": 1,
    "aten::_addmm_activation": 1,
    "aten::baddbmm": 1,
}


@metric(None)
def shaped_operators(m: Metrics) -> Shaped:
    """Operators by the shapes of their inputs: a GPU's if a window has seen any, else the CPU's."""
    rank = m[primary_rank]
    device: Literal["cpu", "cuda"] = "cuda" if any(window.device == "cuda" for window in rank.windows) else "cpu"
    found = tuple(operator for operator in rank.operators if operator.device == device and operator.inputs)
    windows = {operator.window for operator in found}
    seconds = sum(kernel.total for kernel in rank.kernels if kernel.window in windows and kernel.device == device)
    steps = sum(window.steps for window in rank.windows if window.shapes and window.device == device)
    if not found or seconds <= 0 or not steps:
        raise Missing(
            "The shapes that operators work on were not recorded",
            "Record for longer, or with a larger --budget: every second profiler window records shapes.",
        )
    return Shaped(device=device, operators=found, seconds=seconds, steps=steps)


@metric(None)
def products(m: Metrics) -> tuple[Product, ...]:
    """Matrix products by size and dtype, without convolutions."""
    return tuple(product for operator in m[shaped_operators].operators if (product := product_of(operator)))


def product_of(operator: Operator) -> Product | None:
    """What the operator multiplies; None if it is no product of two matrices, or of two stacks of them."""
    first = _FIRST_MATRIX.get(operator.name)
    matrices = () if first is None else operator.inputs[first : first + 2]
    if len(matrices) != 2:
        return None
    left, right = matrices
    if len(left) != len(right) or len(left) not in (2, 3) or left[-1] != right[-2] or min(*left, *right) < 1:
        return None
    return Product(
        batch=left[0] if len(left) == 3 else 1,
        rows=left[-2],
        columns=right[-1],
        inner=left[-1],
        dtype=operator.dtype,
        calls=operator.calls,
        seconds=operator.total,
    )
