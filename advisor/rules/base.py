"""What a rule is: one file that says If (measured facts), Then (the exact change), its gain, risk, and limits.

A rule sees metrics only. A metric that is Missing ends the rule as "not measured"; an exception ends it as "crashed";
neither stops the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal

from advisor.metrics.base import Metric, Metrics, Threshold
from advisor.models.state import Effect


class Tier(Enum):
    """The order in which advice is taken; a fault of tier 0 voids the predictions of the others."""

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
    """How far the gain model of a rule is trusted before any trial has tested it."""

    PHASE_REMOVAL = 0.9
    ROOFLINE = 0.75
    EMPIRICAL = 0.6
    HEURISTIC = 0.4


@dataclass(frozen=True, slots=True)
class Source:
    """Where a threshold or a model comes from."""

    title: str
    url: str | None = None


@dataclass(frozen=True, slots=True)
class Fact:
    """One measured value and the limit it was held against; `relation` reads "value relation limit"."""

    metric: Metric[Any]
    value: float
    limit: float | None = None
    relation: Literal[">=", "<=", ">", "<", "=="] = ">="


@dataclass(frozen=True, slots=True)
class Evidence:
    """Why a rule fired."""

    facts: tuple[Fact, ...]
    note: str = ""
    """Anything beyond numbers: which GPU, which loader, which throttle reason. Plain text."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A setting as it is and as it should be."""

    name: str
    before: str
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Code or a setting to copy; file and line are where the agent saw the thing made."""

    language: Literal["python", "shell", "json", "text"]
    code: str
    file: str | None = None
    line: int | None = None
    differences: tuple[Difference, ...] = ()
    """What is known of the settings as they are."""


class Safety(Enum):
    """What a change that is tried by itself may alter beside speed."""

    EXACT = "exact"
    """Nothing: the same numbers in the first epoch. Workers that persist shuffle later ones otherwise."""
    NUMERICS = "numerics"
    """Rounding."""
    MEMORY = "memory"
    """How much memory is taken, for the same numbers."""
    TRAJECTORY = "trajectory"
    """What is trained: the batch, the optimizer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervention:
    """The change as the agent makes it from outside: a file in profiler/agent/interventions, and its settings."""

    name: str
    settings: Mapping[str, object]
    safety: Safety
    leaves: str = ""
    """What of the advice it does not do, as it follows "without"; nothing if it does all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What to do about it in *this* run. Plain text throughout; numbers filled in."""

    then: str
    changes: tuple[Change, ...]
    basis: str
    """How the gain was predicted, in a sentence."""
    effect: Effect | None = None
    """What the change does to the step; None where no gain in step time is predicted."""
    memory: int | None = None
    """Bytes the change adds to (or, negative, frees from) the peak of GPU memory of one rank; None if unknown."""
    host_memory: int | None = None
    cost: tuple[float, float, float] | None = None
    """Share of the training's cost that goes, low, expected, high, where that is not the share of the step time: fewer
    or cheaper GPUs, an earlier end."""
    risk: str
    fault: bool = False
    """A fault of fit, correctness or hardware: to be acted on whatever the gain."""
    intervention: Intervention | None = None
    """How it is tried; None where that takes a hand."""
    confidence: Confidence | None = None
    """Lower than the rule's where an assumption stands in for a measurement; None: as the rule says."""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """`RULE` of a module in this package. Its id is the file's name with dashes; the module's docstring is its page."""

    title: str
    """Imperative: what the advice says in a line."""
    tier: Tier
    when: Callable[[Metrics], Evidence | None]
    then: Callable[[Metrics, Evidence], Advice]
    confidence: Confidence
    difficulty: Literal[1, 2, 3]
    sources: tuple[Source, ...]
    cap: Severity = Severity.ACTION
    """The highest severity this advice can have without the user's opting in."""
    supersedes: tuple[str, ...] = ()
    """Ids of rules that say nothing if this one fired."""
    id: str = ""
    page: str = ""
    thresholds: Mapping[str, Threshold] = field(default_factory=dict, hash=False)
    """By their names in lower case; id, docstring and thresholds are taken from the module by `rule_of`."""
    limits: Mapping[str, float] = field(default_factory=dict, hash=False)
    """What the configuration sets in place of thresholds' values."""
    origin: str = ""
    """The file of a rule that is not ours."""
    off: str = ""
    """What switched the rule off, if anything did."""

    @property
    def in_force(self) -> dict[str, float]:
        """The limit that each threshold stands for."""
        return {name: self.limits.get(name, threshold.value) for name, threshold in self.thresholds.items()}

    def view(self, metrics: Metrics) -> Metrics:
        """The metrics as this rule sees them: with its own limits."""
        return metrics.limited({self.thresholds[name]: value for name, value in self.limits.items()})
