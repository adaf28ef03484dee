"""The parts of a rule: If (measured facts), Then (the exact change), gain, risk and limits.

A rule sees metrics only. A missing metric ends the rule as "not measured"; an exception ends it as "crashed".
Neither stops the other rules.
"""

import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from enum import Enum
from typing import Any, Literal

from advisor.metrics.base import Metric, Metrics, Threshold
from advisor.models.state import Effect
from profiler.schema import Place


class Area(Enum):
    """Areas of advice, in the order in which to follow it.

    A fault in the first area invalidates the predictions of all others.
    """

    VALIDITY = 0
    STALLS = 1
    PRECISION = 2
    KERNELS = 3
    MEMORY = 4
    DISTRIBUTED = 5
    OFFLOAD = 6
    COST = 7
    MODEL = 8


class Severity(Enum):
    """How much a piece of advice matters."""

    INFO = "info"
    SUGGEST = "suggest"
    ACTION = "action"


class Confidence(Enum):
    """How far a rule's gain model is trusted before a trial has tested it."""

    PHASE_REMOVAL = 0.9
    ROOFLINE = 0.75
    EMPIRICAL = 0.6
    HEURISTIC = 0.4


@dataclass(frozen=True, slots=True)
class Source:
    """The source of a threshold or a model."""

    title: str
    url: str | None = None


Relation = Literal[">=", "<=", ">", "<", "=="]
_RELATIONS = {">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt, "==": operator.eq}


@dataclass(frozen=True, slots=True)
class Measurement:
    """A measured value and the limit it was compared with; `relation` reads "value relation limit"."""

    metric: Metric[Any]
    value: float
    limit: float | None = None
    relation: Relation = ">="

    @property
    def holds(self) -> bool:
        """Return whether the relation is true; a value without a limit is only shown."""
        return self.limit is None or _RELATIONS[self.relation](self.value, self.limit)


@dataclass(frozen=True, slots=True)
class Evidence:
    """The reason why a rule fired."""

    facts: tuple[Measurement, ...]
    note: str = ""
    """Details that are not numbers, as plain text: which GPU, which loader, which throttle reason."""


def measure(
    m: Metrics, metric: Metric[Any], relation: Relation = ">=", limit: Threshold | float | None = None
) -> Measurement:
    """Return the value of a metric, and the limit it is compared with if there is one."""
    return Measurement(metric, m[metric], m[limit] if isinstance(limit, Threshold) else limit, relation)


def evidence(*facts: Measurement, note: str = "") -> Evidence | None:
    """Return the evidence; None unless all facts hold."""
    return Evidence(facts, note) if all(fact.holds for fact in facts) else None


@dataclass(frozen=True, slots=True)
class CodeDifference:
    """A setting's current and suggested value."""

    name: str
    before: str
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Code or a setting to copy; `file` and `line` are where the agent saw the object created."""

    language: Literal["python", "shell", "json", "text"]
    code: str
    file: str | None = None
    line: int | None = None
    differences: tuple[CodeDifference, ...] = ()
    """The changed settings whose current values are known."""


def python(code: str, place: Place | None = None, differences: Iterable[CodeDifference] = ()) -> Change:
    """Return a Python change with its location, if known, and the settings it changes."""
    file, line = (place.file, place.line) if place else (None, None)
    return Change(language="python", code=code, file=file, line=line, differences=tuple(differences))


def bash(code: str) -> Change:
    """Return a change made on the command line or in the environment."""
    return Change(language="shell", code=code)


def text(words: str, place: Place | None = None) -> Change:
    """Return a change described in words, with its location if known."""
    return replace(python(words, place), language="text")


class Safety(Enum):
    """What a change that is tried automatically may alter in addition to speed."""

    EXACT = "exact"
    """Nothing: the first epoch has the same numbers. Persistent workers shuffle later epochs differently."""
    NUMERICS = "numerics"
    """Rounding."""
    MEMORY = "memory"
    """The amount of memory in use; the numbers stay the same."""
    TRAJECTORY = "trajectory"
    """What is trained: the batch or the optimizer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervention:
    """A change that the agent makes from outside: a file in `profiler/agent/interventions` and settings."""

    name: str
    settings: Mapping[str, object]
    safety: Safety
    leaves: str = ""
    """The part of the advice it does not cover, worded to follow "without"; empty if it covers all of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What to do in *this* run, as plain text with the numbers filled in."""

    then: str
    title: str = ""
    """The change in one line, in the imperative, if this run shows more than the rule's title says."""
    changes: tuple[Change, ...]
    basis: str
    """How the gain was predicted, in one sentence."""
    effect: Effect | None = None
    """How the change affects the step; None if no gain in step time is predicted."""
    memory: int | None = None
    """Bytes added to one rank's peak GPU memory, negative if freed; None if unknown."""
    host_memory: int | None = None
    cost: tuple[float, float, float] | None = None
    """Share of the training cost saved (low, expected, high), if it is not the share of step time saved.

    Examples are fewer or cheaper GPUs, or an earlier end.
    """
    risk: str
    fault: bool = False
    """Whether this is a fault (out of memory, wrong results, hardware) that must be fixed whatever the gain."""
    intervention: Intervention | None = None
    """How the change is tried automatically; None if it must be made by hand."""
    confidence: Confidence | None = None
    """Set if lower than the rule's, because an assumption replaces a measurement; None keeps the rule's."""


@dataclass(frozen=True)
class Rule:
    """A rule: the `RULE` constant of a module in this package.

    Its id is the module's name with dashes, and the module's docstring is its page, which ends with lines
    "Source: TITLE" or "Source: TITLE, URL".
    """

    title: str
    """The advice in one line, in the imperative."""
    area: Area
    confidence: Confidence
    _: KW_ONLY
    difficulty: Literal[1, 2, 3] = 1
    """Effort of the change: an argument (1), an hour's work (2) or a day's work (3)."""
    cap: Severity = Severity.ACTION
    """The highest severity this advice can have unless the user opts in to more."""
    supersedes: tuple[str, ...] = ()
    """Ids of the rules that are silenced when this one fires."""
    certain: bool = False
    """Whether the finding is a setting, which noisy timings do not make doubtful."""
    when: Callable[[Metrics], Evidence | None] = None  # type: ignore[assignment]
    then: Callable[[Metrics, Evidence], Advice] = None  # type: ignore[assignment]
    id: str = ""
    page: str = ""
    sources: tuple[Source, ...] = ()
    thresholds: Mapping[str, Threshold] = field(default_factory=dict, hash=False)
    """Thresholds by lower-case name; `rule_of` takes these six fields from the module."""
    limits: Mapping[str, float] = field(default_factory=dict, hash=False)
    """Threshold values that the configuration overrides."""
    origin: str = ""
    """The file of a user's own rule; empty for a built-in rule."""
    off: str = ""
    """What switched the rule off; empty if nothing did."""

    @property
    def in_force(self) -> dict[str, float]:
        """Return the value in force for each threshold."""
        return {name: self.limits.get(name, threshold.value) for name, threshold in self.thresholds.items()}

    def view(self, metrics: Metrics) -> Metrics:
        """Return the metrics as this rule sees them, with its own limits."""
        return metrics.limited({self.thresholds[name]: value for name, value in self.limits.items()})
