"""Summarize the profiler windows: the GPU kernels or, on a CPU, the operators that take most time."""

from dataclasses import dataclass
from typing import Literal

from advisor.runs.profile import Profile
from profiler.grouping import grouped

# Number of kernels shown; each of the hundreds of others is too small to act on.
SHOWN = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One kernel (by name) or operator (self time), per mean recorded step."""

    name: str
    kind: str
    calls: float
    seconds: float
    share: float
    """Share of the time of all operations."""
    tensor_cores: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Operations:
    """The most expensive kernels or operators, most time first."""

    device: Literal["cpu", "cuda"]
    steps: float
    """Steps that the windows recorded."""
    seconds: float
    """Seconds per step of all operations, including those not shown."""
    count: int
    """Number of kernels or operators, by name."""
    shown: tuple[Operation, ...]


def operations(profile: Profile) -> Operations | None:
    """Return the operations of the first rank: the GPU's if a window saw any; None without windows."""
    if not profile.ranks:
        return None
    rank = profile.ranks[0]
    device: Literal["cpu", "cuda"] = "cuda" if any(kernel.device == "cuda" for kernel in rank.kernels) else "cpu"
    steps = sum(window.steps for window in rank.windows if window.device == device)
    device_kernels = (kernel for kernel in rank.kernels if kernel.device == device)
    by_name = grouped(device_kernels, lambda kernel: (kernel.name, kernel.kind))
    total = sum(kernel.total for kernels in by_name.values() for kernel in kernels)
    if not steps or total <= 0:
        return None
    rows = [
        Operation(
            name=name,
            kind=kind,
            calls=sum(kernel.calls for kernel in kernels) / steps,
            seconds=sum(kernel.total for kernel in kernels) / steps,
            share=sum(kernel.total for kernel in kernels) / total,
            tensor_cores=kernels[0].tensor_cores,
        )
        for (name, kind), kernels in by_name.items()
    ]
    rows.sort(key=lambda operation: (-operation.seconds, operation.name))
    return Operations(device=device, steps=steps, seconds=total / steps, count=len(rows), shown=tuple(rows[:SHOWN]))
