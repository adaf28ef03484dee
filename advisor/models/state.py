"""What one mean steady step is made of, and what becomes of it when something is changed.

Gains are never added. Each change is a function State -> State; the time of the new state is taken afresh, with every
floor (the loader's supply, the host's launch rate) applied again. So two changes that claim the same idle time gain it
once, and a faster GPU behind a slow loader gains nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum

from advisor.models.input_pipeline import needed_workers, supply


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
    host_cores: int | None = None
    """Cores the rank may use in all; one more than `cores` if not given."""
    batches: float = 1.0
    """Batches a step consumes: more than one under gradient accumulation."""
    compute_threads: float = 0.0
    """Cores the training process itself keeps busy while computing."""
    floor: float = 0.0
    """Seconds per batch that storage needs however many workers read."""
    contention: float = 1.0
    """kappa: how much slower workers get side by side."""

    def number(self, compute: float) -> int:
        """W* for a step that takes `compute` seconds once its batches are there."""
        return needed_workers(
            self.t_w, compute / self.batches, u_w=self.u_w, available=self.cores, cores=self._host_cores
        )

    def supply(self, compute: float) -> float:
        """Seconds that the batches of one step take with that many workers."""
        return self.batches * supply(
            self.t_w,
            self.number(compute),
            t_g=compute / self.batches,
            u_w=self.u_w,
            cores=self._host_cores,
            threads=self.compute_threads,
            contention=self.contention,
            floor=self.floor,
        )

    @property
    def _host_cores(self) -> int:
        return self.cores + 1 if self.host_cores is None else self.host_cores


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """A mean steady step and what falls between steps, in seconds a step."""

    phases: dict[str, float]
    """Exclusive seconds of every measured phase except data_wait."""
    between: dict[str, float] = field(default_factory=dict)
    """Evaluation, saving, starting epochs again: each over the number of steps."""
    load: float = 0.0
    """Data wait in series with the rest: all of it without workers, stalls of a jittery loader with them."""
    supply: float = 0.0
    """Seconds a loader that cannot keep up needs for the batches of a step: the step takes at least this."""
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
        """Seconds of the step with every floor, and of what falls between steps."""
        supply = self.workers.supply(self.compute) if self.workers else self.supply
        return max(self.compute + self.load, supply, self.launch) + sum(self.between.values())

    def without(self, part: str, seconds: float) -> State:
        """The same step with that much less of a phase, or of what falls between; never below zero."""
        return self._with(part, max(0.0, self._seconds(part) - max(0.0, seconds)))

    def scaled(self, part: str, factor: float) -> State:
        """The same step with a phase, or what falls between, times `factor`."""
        return self._with(part, self._seconds(part) * factor)

    def times(self, factor: float) -> State:
        """The same step with all of it `factor` times as long, floors and loader too."""
        made = self.workers
        return State(
            phases={name: factor * seconds for name, seconds in self.phases.items()},
            between={name: factor * seconds for name, seconds in self.between.items()},
            load=factor * self.load,
            supply=factor * self.supply,
            workers=replace(made, t_w=factor * made.t_w, floor=factor * made.floor) if made else None,
            launch=factor * self.launch,
            matmul=factor * self.matmul,
            membound=factor * self.membound,
            launch_idle=factor * self.launch_idle,
        )

    def longer(self, phase: str, seconds: float) -> State:
        """The same step with that much more of one phase."""
        return self._with(phase, self._seconds(phase) + seconds)

    def _seconds(self, part: str) -> float:
        return self.between.get(part, self.phases.get(part, 0.0))

    def _with(self, part: str, seconds: float) -> State:
        if part in self.between:
            return replace(self, between={**self.between, part: seconds})
        return replace(self, phases={**self.phases, part: seconds})


Effect = Callable[[State, Scenario], State]


def removed(before: State, after: State) -> float:
    """r = 1 - T1/T0: the share of the step time that is gone (negative if it got longer)."""
    return 1.0 - after.time / before.time if before.time > 0 else 0.0
