"""The definition of a metric: a named, documented, pure function of a profile, with a unit.

A metric that has no value raises `Missing` with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, Literal, TypeVar, cast, overload

from advisor.runs.profile import Profile

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Need(Enum):
    """The reason why a metric has no value."""

    GPU = "gpu"
    """The program does not train on a GPU."""
    RANKS = "ranks"
    """There is only one rank."""
    DECLARATION = "declaration"
    """Only the user knows the value."""
    RUN = "run"
    """Any other reason: this run, or a trace of it, did not show the value."""


class Missing(Exception):
    """Raised for a metric without a value: what was not measured, and how to measure it."""

    def __init__(self, what: str, remedy: str, need: Need = Need.RUN) -> None:
        super().__init__(what)
        self.what = what
        self.remedy = remedy
        self.need = need


def known(value: T | None, what: str, remedy: str, need: Need = Need.RUN) -> T:
    """Return the value.

    Raises:
        Missing: it is None.
    """
    if value is None:
        raise Missing(what, remedy, need)
    return value


def if_measured(compute: Callable[..., T], *arguments: object) -> T | None:
    """Return the function's result for the arguments; None if it raises Missing."""
    try:
        return compute(*arguments)
    except Missing:
        return None


@dataclass(frozen=True, eq=False)
class Metric(Generic[T_co]):
    """A named measure of a run.

    `unit` is "s", "1" (a share or ratio), "count", "B", "W", "FLOP/s" and so on; None marks a fact that is not a
    number.
    """

    name: str
    unit: str | None
    doc: str
    compute: Callable[[Metrics], T_co]
    label: str
    """The readable name, in lower case, as it appears in a sentence or a table."""


def metric(unit: str | None, label: str = "") -> Callable[[Callable[[Metrics], T]], Metric[T]]:
    """Make a metric from the decorated function.

    The function's name and docstring become the metric's. Without a label, the readable name is the function's name
    with spaces.
    """

    def make(function: Callable[[Metrics], T]) -> Metric[T]:
        doc = function.__doc__
        if not doc:
            raise TypeError(f"metric {function.__name__} needs a docstring")
        return Metric(function.__name__, unit, doc, function, label or function.__name__.replace("_", " "))

    return make


@dataclass(frozen=True, eq=False)
class Threshold:
    """A limit of a rule, read as `m[MIN_WAIT]`. Its name is the constant's name in lower case."""

    value: float
    why: str
    """The source of the number, or "assumption" with its reason."""


@dataclass(frozen=True, slots=True)
class Quality:
    """The training's quality target: a metric of the user's own that has to reach a value."""

    metric: str
    relation: Literal[">=", "<=", ">", "<"]
    value: float


@dataclass(frozen=True, kw_only=True)
class Goals:
    """The user's declarations; everything else is assumed, and reported as assumed."""

    goal: Literal["throughput", "memory", "cost", "latency"] | None = None
    """The main goal: samples per second, memory, GPU-hours and money, or the latency of the trained model."""
    target_batch: int | None = None
    """Wanted samples per optimizer step, over all GPUs."""
    capacity: bool = False
    """Whether a larger batch or model is wanted, so that memory rules may fire without a fault."""
    quality: Quality | None = None
    gpu_price: float | None = None
    """Price per GPU and hour, in the user's currency."""
    mtbf: float | None = None
    """Mean time between failures of the whole job, in seconds."""
    restart: float | None = None
    """Seconds from a failure until training continues."""
    spot_discount: float | None = None
    """Discount on interruptible machines, as a share of the price (0 to 1)."""
    queue_share: float | None = None
    """Share of GPU time allocated or waited for without training (0 to 1)."""
    validation: tuple[float, ...] | None = None
    """The quality after each validation, oldest first; higher is better."""

    @property
    def more_memory(self) -> bool:
        """Return whether a goal asks for more memory than the run needed."""
        return self.capacity or self.goal == "memory" or self.target_batch is not None


class Metrics:
    """The metrics of one run, each computed once, on first use.

    `m[step_time_mean]` is the value, or raises `Missing`. Values in `given` replace computed ones, so that the test
    cases of a rule need no profile.
    """

    def __init__(
        self, profile: Profile | None, goals: Goals | None = None, given: Mapping[Metric[Any], object] | None = None
    ) -> None:
        self._profile = profile
        self.goals = goals or Goals()
        self._cache: dict[Metric[Any], object] = dict(given or {})
        self._limits: Mapping[Threshold, float] = {}

    def limited(self, limits: Mapping[Threshold, float]) -> Metrics:
        """Return the same metrics with these limits instead of the thresholds' own values.

        Both share the computed values.
        """
        view = copy(self)
        view._limits = limits
        return view

    @property
    def profile(self) -> Profile:
        """Return the profile of the run, for metrics only; rules read metrics."""
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
            except (ArithmeticError, ValueError):  # a damaged or foreign store may hold any number: 0, 1e300 s
                self._cache[metric] = Missing("The recording contains an impossible value", "Record the run again.")
        value = self._cache[metric]
        if isinstance(value, Missing):
            raise Missing(value.what, value.remedy, value.need)
        return cast(T, value)

    def get(self, metric: Metric[T]) -> T | None:
        """Return the value, or None if it is missing; use it only for facts that a rule can do without."""
        try:
            return self[metric]
        except Missing:
            return None
