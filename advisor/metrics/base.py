"""What a metric is: a named, documented, pure function of a profile, with a unit - or the reason why there is none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, Literal, TypeVar, cast, overload

from advisor.profile import Profile

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Need(Enum):
    """What a metric without a value is for want of."""

    GPU = "gpu"
    """A GPU that the program trains on."""
    RANKS = "ranks"
    """Several ranks."""
    DECLARATION = "declaration"
    """Something that only the user knows."""
    RUN = "run"
    """Anything else that this run, or a trace of it, did not show."""


class Missing(Exception):
    """A metric has no value: what was not measured, and what to do to measure it."""

    def __init__(self, what: str, remedy: str, need: Need = Need.RUN) -> None:
        super().__init__(what)
        self.what = what
        self.remedy = remedy
        self.need = need


@dataclass(frozen=True, eq=False)
class Metric(Generic[T_co]):
    """`unit` is "s", "1" (a share or ratio), "count", "B", "W", "FLOP/s" ...; None marks a setting of the program."""

    name: str
    unit: str | None
    doc: str
    compute: Callable[[Metrics], T_co]
    label: str
    """The name for people, in lower case, as it stands in a sentence or a table."""


def metric(unit: str | None, label: str = "") -> Callable[[Callable[[Metrics], T]], Metric[T]]:
    """Make a metric of the function: its name and docstring become the metric's; without a label, the name in words."""

    def make(function: Callable[[Metrics], T]) -> Metric[T]:
        doc = function.__doc__
        if not doc:
            raise TypeError(f"metric {function.__name__} needs a docstring")
        return Metric(function.__name__, unit, doc, function, label or function.__name__.replace("_", " "))

    return make


@dataclass(frozen=True, eq=False)
class Threshold:
    """A limit of a rule, read as `m[MIN_WAIT]`. Its name is the constant's in the rule's module, in lower case."""

    value: float
    why: str
    """Where the number comes from: the source, or "assumption" and what speaks for it."""


@dataclass(frozen=True, slots=True)
class Quality:
    """What the training is for: a metric of its own that reaches a value."""

    metric: str
    relation: Literal[">=", "<=", ">", "<"]
    value: float


@dataclass(frozen=True, kw_only=True)
class Goals:
    """What the user declared; everything else is assumed and said so."""

    goal: Literal["throughput", "memory", "cost", "latency"] | None = None
    """What counts most: samples a second, room in memory, GPU-hours and money, how fast the trained model answers."""
    target_batch: int | None = None
    """Wanted samples per optimizer step, over all GPUs."""
    capacity: bool = False
    """A larger batch or model is wanted: memory rules may speak without a fault."""
    quality: Quality | None = None
    gpu_price: float | None = None
    """Per GPU and hour, in the user's currency."""
    mtbf: float | None = None
    """Mean time between failures of the whole job, seconds."""
    restart: float | None = None
    """From a failure until training goes on, seconds."""
    spot_discount: float | None = None
    """Share of the price that interruptible machines are cheaper by."""
    queue_share: float | None = None
    """Share of the time for which GPUs are allocated or waited for without training."""
    validation: tuple[float, ...] | None = None
    """The quality after each validation, oldest first; higher is better."""

    @property
    def more_memory(self) -> bool:
        """Whether memory is wanted beyond what the run needed: by any of the goals that say so."""
        return self.capacity or self.goal == "memory" or self.target_batch is not None


class Metrics:
    """The metrics of one run, computed when asked for, once.

    `m[step_time_mean]` is the value, or raises Missing. `given` values stand in for computed ones: a rule's cases are
    written that way, without a profile.
    """

    def __init__(
        self,
        profile: Profile | None,
        goals: Goals | None = None,
        given: Mapping[Metric[Any], object] | None = None,
    ) -> None:
        self._profile = profile
        self.goals = goals or Goals()
        self._cache: dict[Metric[Any], object] = dict(given or {})
        self._limits: Mapping[Threshold, float] = {}

    def limited(self, limits: Mapping[Threshold, float]) -> Metrics:
        """The same metrics, computed once for both, with these limits in place of the thresholds' own values."""
        view = copy(self)
        view._limits = limits
        return view

    @property
    def profile(self) -> Profile:
        """The run itself, for metrics; rules ask metrics only."""
        if self._profile is None:
            raise Missing("Not part of this case", "Give the metric a value.")
        return self._profile

    @overload
    def __getitem__(self, metric: Metric[T]) -> T: ...

    @overload
    def __getitem__(self, metric: Threshold) -> float: ...

    def __getitem__(self, metric: Metric[T] | Threshold) -> T | float:
        if isinstance(metric, Threshold):
            return self._limits.get(metric, metric.value)
        if metric not in self._cache:
            try:
                self._cache[metric] = metric.compute(self)
            except Missing as missing:
                self._cache[metric] = missing
        value = self._cache[metric]
        if isinstance(value, Missing):
            raise Missing(value.what, value.remedy, value.need)
        return cast(T, value)

    def get(self, metric: Metric[T]) -> T | None:
        """The value, or None where it is missing: only for facts a rule can do without."""
        try:
            return self[metric]
        except Missing:
            return None
