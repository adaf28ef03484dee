"""The parts of one mean steady step, and how changes affect them.

Gains are never added. Each change is a function State -> State, and the time of the new state is computed again with
every lower limit (the loader's supply, the host's launch rate). So two changes that claim the same idle time save it
once, and a faster GPU behind a slow loader gains nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum

from advisor.models.input_pipeline import Workers


class Scenario(Enum):
    """The 10th, 50th and 90th percentile of the expected gain of a change."""

    LOW = 0
    EXPECTED = 1
    HIGH = 2

    def of(self, values: tuple[float, float, float]) -> float:
        """Return the value of (low, expected, high) for this scenario."""
        return values[self.value]


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """A mean steady step and the time between steps, in seconds per step."""

    phases: dict[str, float]
    """Exclusive seconds of every measured phase except data_wait."""
    between: dict[str, float] = field(default_factory=dict)
    """Seconds of evaluation, saving and epoch starts, each divided by the number of steps."""
    load: float = 0.0
    """Data wait that is serial with the rest.

    Without workers this is all data wait; with workers it is the stalls of a jittery loader.
    """
    supply: float = 0.0
    """Seconds that a loader that cannot keep up takes to deliver a step's batches: a lower limit on the step."""
    workers: Workers | None = None
    """Set once the number of workers is chosen; that number then follows the compute time."""
    launch: float = 0.0
    """Host seconds to enqueue the step, with a margin; no GPU speed-up makes a step shorter than that."""
    matmul: float = 0.0
    """GPU-busy seconds in matmuls and convolutions; part of the phases."""
    membound: float = 0.0
    """GPU-busy seconds in elementwise, normalization, softmax and copy kernels; part of the phases."""
    launch_idle: float = 0.0
    """GPU-idle seconds because the host launched too late; part of the phases."""

    @property
    def compute(self) -> float:
        """Return the seconds of the step if its batch were always ready."""
        return sum(self.phases.values())

    @property
    def time(self) -> float:
        """Return the seconds of the step with every lower limit, plus the time between steps."""
        supply = self.workers.supply(self.compute) if self.workers else self.supply
        return max(self.compute + self.load, supply, self.launch) + sum(self.between.values())

    def without(self, part: str, seconds: float) -> State:
        """Return the step with a phase, or a part between steps, shorter by `seconds`; never below zero."""
        return self._with(part, max(0.0, self.seconds(part) - max(0.0, seconds)))

    def scaled(self, part: str, factor: float) -> State:
        """Return the step with a phase, or a part between steps, multiplied by `factor`, if that was measured."""
        is_measured = part in self.phases or part in self.between
        return self._with(part, self.seconds(part) * factor) if is_measured else self

    def times(self, factor: float) -> State:
        """Return the step with everything multiplied by `factor`, including lower limits and loader."""
        return State(
            phases={name: factor * seconds for name, seconds in self.phases.items()},
            between={name: factor * seconds for name, seconds in self.between.items()},
            load=factor * self.load,
            supply=factor * self.supply,
            workers=replace(self.workers, batch_time=factor * self.workers.batch_time) if self.workers else None,
            launch=factor * self.launch,
            matmul=factor * self.matmul,
            membound=factor * self.membound,
            launch_idle=factor * self.launch_idle,
        )

    def longer(self, phase: str, seconds: float) -> State:
        """Return the step with one phase longer by `seconds`."""
        return self._with(phase, self.seconds(phase) + seconds)

    def seconds(self, part: str) -> float:
        """Return the seconds of a phase, or of a part between steps; 0 if they were not measured."""
        return self.between.get(part, self.phases.get(part, 0.0))

    def _with(self, part: str, seconds: float) -> State:
        if part in self.between:
            return replace(self, between={**self.between, part: seconds})
        return replace(self, phases={**self.phases, part: seconds})


Effect = Callable[[State, Scenario], State]


def removed(before: State, after: State) -> float:
    """Return r = 1 - T1/T0, the share of step time removed; negative if the step got longer."""
    return 1.0 - after.time / before.time if before.time > 0 else 0.0
