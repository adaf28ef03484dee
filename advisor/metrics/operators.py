"""Operators by input shape, from the profiler windows that recorded shapes."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import prod
from typing import Literal

from advisor.metrics.base import Metrics, Missing, metric
from advisor.metrics.settings import primary_rank
from advisor.metrics.step import gpu_windows
from advisor.runs.profile import Rank
from profiler.grouping import grouped
from profiler.schema import Kernel, Operator


@dataclass(frozen=True, slots=True, kw_only=True)
class Shaped:
    """The contents of the profiler windows that recorded shapes."""

    device: Literal["cpu", "cuda"]
    operators: tuple[Operator, ...]
    seconds: float
    """Seconds of all kernels in these windows; on a CPU, of all operators, each without the ones it calls."""
    steps: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """Matmuls of one size and dtype: `batch` times (rows x inner) by (inner x columns)."""

    batch: int
    rows: int
    columns: int
    inner: int
    dtype: str | None
    calls: int
    seconds: float
    """Seconds of all calls."""

    @property
    def lengths(self) -> tuple[int, int, int]:
        """Return the dimensions, without the batch."""
        return self.rows, self.columns, self.inner

    @property
    def flop(self) -> float:
        """Return the floating-point operations per call: one multiplication and one addition for each term."""
        return 2.0 * self.batch * prod(self.lengths)

    @property
    def numbers(self) -> int:
        """Return the elements that a call reads and writes."""
        rows, columns, inner = self.lengths
        return self.batch * (rows * inner + inner * columns + rows * columns)

    @property
    def intensity(self) -> float:
        """Return the operations per element that is read or written."""
        return self.flop / self.numbers


# The argument at which an operator's two matrices begin.
_FIRST_MATRIX = {
    "aten::mm": 0,
    "aten::bmm": 0,
    "aten::_scaled_mm": 0,
    "aten::addmm": 1,
    "aten::_addmm_activation": 1,
    "aten::baddbmm": 1,
}


_REGION = "Torch-Compiled Region: "


@metric(None)
def shaped_operators(m: Metrics) -> Shaped:
    """Operators by input shape, on the GPU if a window recorded GPU operators, otherwise on the CPU."""
    rank = m[primary_rank]
    device: Literal["cpu", "cuda"] = "cuda" if any(window.device == "cuda" for window in rank.windows) else "cpu"
    operators = _by_shape(operator for operator in rank.operators if operator.device == device and any(operator.inputs))
    windows = {operator.window for operator in operators}
    seconds = sum(kernel.total for kernel in computing_kernels(rank, device) if kernel.window in windows)
    steps = sum(window.steps for window in rank.windows if window.shapes and window.device == device)
    if not operators or seconds <= 0 or not steps:
        raise Missing(
            "The operators' input shapes were not recorded",
            "Record for longer, or with a larger --budget: every second profiler window records shapes.",
        )
    return Shaped(device=device, operators=operators, seconds=seconds, steps=steps)


@metric("count", "functions compiled separately")
def compiled_functions(m: Metrics) -> int:
    """Functions that torch.compile compiled separately: one for a model, and one for each piece after a graph break.

    torch names the ranges of their calls "Torch-Compiled Region: function/variant".
    """
    names = {name for operator in m[primary_rank].operators for name in operator.path if name.startswith(_REGION)}
    if not names:
        raise Missing("No compiled function was recorded", "Nothing to do, unless the model is compiled.")
    return len({name.removeprefix(_REGION).partition("/")[0] for name in names})


def _by_shape(operators: Iterable[Operator]) -> tuple[Operator, ...]:
    """Return the operators of each window by name and inputs, wherever they are in the model; most time first."""
    groups = grouped(operators, lambda operator: (operator.window, operator.name, operator.inputs, operator.dtype))
    sums = (
        replace(
            group[0],
            calls=sum(operator.calls for operator in group),
            total=sum(operator.total for operator in group),
            flop=None if group[0].flop is None else sum(operator.flop or 0.0 for operator in group),
        )
        for group in groups.values()
    )
    return tuple(sorted(sums, key=lambda operator: -operator.total))


def gpu_operators(m: Metrics) -> tuple[list[Operator], float, float]:
    """Return the primary rank's operators on a GPU, the seconds of its computing kernels, and the steps in which they
    ran.
    """
    rank = m[primary_rank]
    operators = [operator for operator in rank.operators if operator.device == "cuda"]
    kernel_seconds = sum(kernel.total for kernel in computing_kernels(rank))
    return operators, kernel_seconds, sum(window.steps for window in gpu_windows(m))


def shaped_gpu_operators(m: Metrics) -> tuple[list[Operator], float, float]:
    """Return the same, if input shapes were recorded.

    Raises:
        Missing: they were not, or there was no work on a GPU.
    """
    operators, kernel_seconds, steps = gpu_operators(m)
    if not kernel_seconds or not steps or not any(any(operator.inputs) for operator in operators):
        raise Missing("The operators' input shapes were not recorded", "Trace with record_shapes=True.")
    return operators, kernel_seconds, steps


def computing_kernels(rank: Rank, device: str = "cuda") -> list[Kernel]:
    """Return the rank's kernels that compute: on a GPU, neither collectives nor copies from or to the host."""
    return [kernel for kernel in rank.kernels if kernel.device == device and (device == "cpu" or _is_computing(kernel))]


def _is_computing(kernel: Kernel) -> bool:
    return kernel.kind not in ("communication", "host") and "HtoD" not in kernel.name and "DtoH" not in kernel.name


@metric(None)
def products(m: Metrics) -> tuple[Product, ...]:
    """Matmuls by size and dtype, excluding convolutions."""
    return tuple(product for operator in m[shaped_operators].operators if (product := product_of(operator)))


def product_of(operator: Operator) -> Product | None:
    """Return the matmul of an operator; None if it does not multiply two matrices or stacks of matrices."""
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
