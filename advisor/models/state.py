"""What one mean steady step is made of, and what becomes of it when something is changed.

Gains are never added. Each change is a function State -> State; the time of the new state is taken afresh, with every
floor (the loader's supply, the host's launch rate) applied again. So two changes that claim the same idle time gain it
once, and a faster GPU behind a slow loader gains nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum


class Scenario(Enum):
    """The 10th, 50th and 90th percentile of what a change is expected to bring."""

    LOW = 0
    EXPECTED = 1
    HIGH = 2

    def of(self, values: tuple[float, float, float]) -> float:
        """The one of (low, expected, high) that belongs to this scenario."""
        return values[self.value]


@dataclass(frozen=True, slots=True, kw_only=True)
class Workers:
    """DataLoader workers whose number is chosen for whatever the rest of the step takes."""

    t_w: float
    """Seconds one worker needs for a batch."""
    u_w: float
    """CPU seconds per second of that."""
    cores: int
    """Cores the workers of this rank may use, C_avail."""
    compute_threads: float = 0.0
    """Cores the training process itself keeps busy while computing."""
    floor: float = 0.0
    """Seconds per batch that storage needs however many workers read."""
    contention: float = 1.0
    """kappa: how much slower workers get side by side."""

    def number(self, compute: float) -> int:
        """W* for a step that takes `compute` seconds once its batch is there: enough to keep up and one to spare,
        within the cores and four times their number."""
        wanted = math.ceil(self.t_w / compute - 1e-9) + 1 if compute > 0 else 4 * self.cores
        affordable = math.floor(self.cores / max(self.u_w, 0.05) + 1e-9)
        return max(1, min(wanted, affordable, 4 * self.cores))

    def supply(self, compute: float) -> float:
        """Seconds per batch with that many workers."""
        total_cores = self.cores + 1
        shared = (self.t_w * self.u_w + compute * self.compute_threads) / total_cores
        return max(self.contention * self.t_w / self.number(compute), self.floor, shared)


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """A mean steady step, in seconds."""

    phases: dict[str, float]
    """Exclusive seconds of every measured phase except data_wait."""
    load: float = 0.0
    """Data wait in series with the rest: all of it without workers, stalls of a jittery loader with them."""
    supply: float = 0.0
    """Seconds per batch of a loader that cannot keep up; the step takes at least this."""
    workers: Workers | None = None
    """Set once the number of workers has been made right: then it follows the compute time."""
    launch: float = 0.0
    """Host seconds to enqueue the step (with margin): a floor under any GPU speed-up."""
    matmul: float = 0.0
    """GPU-busy seconds in matrix products and convolutions; part of the phases."""
    membound: float = 0.0
    """GPU-busy seconds in elementwise, normalization, softmax and copy kernels; part of the phases."""
    launch_idle: float = 0.0
    """GPU-idle seconds because the host launched too late; part of the phases."""

    @property
    def compute(self) -> float:
        """Seconds of the step if its batch were always there."""
        return sum(self.phases.values())

    @property
    def time(self) -> float:
        """Seconds of the step, with every floor."""
        supply = self.workers.supply(self.compute) if self.workers else self.supply
        return max(self.compute + self.load, supply, self.launch)

    def without(self, phase: str, seconds: float) -> State:
        """The same step with that much less of one phase, never below zero."""
        left = max(0.0, self.phases.get(phase, 0.0) - max(0.0, seconds))
        return replace(self, phases={**self.phases, phase: left})

    def scaled(self, phase: str, factor: float) -> State:
        """The same step with one phase times `factor`."""
        return replace(self, phases={**self.phases, phase: self.phases.get(phase, 0.0) * factor})


Effect = Callable[[State, Scenario], State]


def removed(before: State, after: State) -> float:
    """r = 1 - T1/T0: the share of the step time that is gone (negative if it got longer)."""
    return 1.0 - after.time / before.time if before.time > 0 else 0.0
