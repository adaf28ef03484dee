"""Write a rule's cases as sentences: given these metrics, it fires, does not fire, or lacks a measurement.

    from advisor.testing import NotMeasured, Fires, DoesNotFire, given

    CASES = [
        Fires("just above the limit", given({sync_fraction: 0.031}), code=".item()"),
        DoesNotFire("just below the limit", given({sync_fraction: 0.029})),
        NotMeasured("nobody measured it", given({})),
    ]

To test your own rule, call `case.check(rule)` with `rule = advisor.rules.rule_of(module)`. Any runner works;
`pytest.register_assert_rewrite("advisor.testing")` makes pytest show the values that differ.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from advisor.metrics.base import Goals, Metric, Metrics, Missing, Threshold
from advisor.models.state import Scenario, State, removed
from advisor.rules.base import Advice, Evidence, Intervention, Rule


def given(values: Mapping[Metric[Any], object], goals: Goals | None = None) -> Metrics:
    """Return these metrics and nothing else, without a profile behind them. A value may be a `Missing`."""
    return Given(None, goals, values)


class Given(Metrics):
    """Given metrics whose errors name the metric that was requested but not given."""

    def __getitem__(self, metric: Metric[Any] | Threshold) -> Any:
        if isinstance(metric, Threshold):
            return super().__getitem__(metric)
        try:
            return super().__getitem__(metric)
        except Missing as missing:
            raise Missing(f"{metric.name}: {missing.what}", missing.remedy) from None


@dataclass(frozen=True)
class Case:
    """What a rule does with these metrics, in a sentence."""

    sentence: str
    metrics: Metrics

    def check(self, rule: Rule) -> None:
        """Check that the rule does so.

        Raises:
            AssertionError: it does not.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class DoesNotFire(Case):
    """The rule finds nothing wrong."""

    def check(self, rule: Rule) -> None:
        """Check that the rule returns no evidence."""
        assert rule.when(self.metrics) is None


@dataclass(frozen=True)
class NotMeasured(Case):
    """Something the rule needs was not measured: it says so with a remedy instead of guessing."""

    def check(self, rule: Rule) -> None:
        """Check that the rule raises Missing with a remedy."""
        try:
            judged(rule, self.metrics)
        except Missing as missing:
            remedy = missing.remedy
        else:
            raise AssertionError("the rule did not raise Missing for a value that was not measured")
        assert remedy, "what is missing has no remedy"


@dataclass(frozen=True)
class Fires(Case):
    """The rule fires. The given fields are checked against its advice, and some things are always checked."""

    code: str | tuple[str, ...] = ()
    """Text that occurs in the code or settings to copy."""
    absent: str | tuple[str, ...] = ()
    """Text that does not occur there."""
    then: str = ""
    """Text that occurs in the advice's sentence."""
    note: str = ""
    """Text that occurs in the evidence's note."""
    state: State | None = None
    removed: tuple[float, float, float] | None = None
    """Share of `state`'s time that is removed: low, expected, high; within 0.005. Needs `state`."""
    no_gain: bool = False
    """Whether no gain in step time is predicted."""
    memory: int | None = None
    """Bytes of GPU memory, within 1 %."""
    host_memory: int | None = None
    """Bytes of host memory, within 1 %."""
    cost: tuple[float, float, float] | None = None
    """Share of the training's cost that is saved: low, expected, high; within 0.005."""
    fault: bool | None = None
    intervention: Intervention | None = None
    """How the advice is tried."""
    by_hand: bool = False
    """Whether the advice cannot be tried from outside."""

    def check(self, rule: Rule) -> None:
        """Check that the rule gives evidence and advice that match the given fields."""
        result = judged(rule, self.metrics)
        assert result is not None, "the rule found nothing wrong"
        evidence, advice = result
        check_evidence(evidence)
        check_advice(advice)
        code = "\n".join(change.code for change in advice.changes)
        for part in _tuple(self.code):
            assert part in code
        for part in _tuple(self.absent):
            assert part not in code
        assert self.then in advice.then
        assert self.note in evidence.note
        if self.state is not None:
            assert self.removed is not None, "a state is given without what is removed of it"
            shares = gains(advice, self.state)
            assert all(map(_near, shares, self.removed)), f"{shares} are removed, not {self.removed}"
        if self.no_gain:
            assert advice.effect is None
        if self.memory is not None:
            assert _like(advice.memory, self.memory), f"{advice.memory} bytes of GPU memory"
        if self.host_memory is not None:
            assert _like(advice.host_memory, self.host_memory), f"{advice.host_memory} bytes of host memory"
        if self.cost is not None:
            assert advice.cost is not None, "no saving is predicted"
            assert all(map(_near, advice.cost, self.cost)), f"{advice.cost} of the cost is saved, not {self.cost}"
        if self.fault is not None:
            assert advice.fault is self.fault
        if self.intervention is not None:
            assert advice.intervention == self.intervention
        if self.by_hand:
            assert advice.intervention is None


def judged(rule: Rule, metrics: Metrics) -> tuple[Evidence, Advice] | None:
    """Return the evidence and advice of the rule for these metrics; None if it finds nothing."""
    evidence = rule.when(metrics)
    return None if evidence is None else (evidence, rule.then(metrics, evidence))


def gains(advice: Advice, state: State) -> tuple[float, float, float]:
    """Return the share of the step's time that is removed: low, expected, high."""
    assert advice.effect is not None, "no gain is predicted"
    low, expected, high = (removed(state, advice.effect(state, scenario)) for scenario in Scenario)
    return low, expected, high


def check_evidence(evidence: Evidence) -> None:
    """Check that there are measured values, and that each has the stated relation to its limit."""
    assert evidence.facts
    for fact in evidence.facts:
        assert fact.holds, f"{fact.metric.name} contradicts itself: {fact}"


def check_advice(advice: Advice) -> None:
    """Check that the advice says what to do, its basis and its risk. Its code must parse, and its gains must ascend."""
    assert advice.then
    assert advice.basis
    assert advice.risk
    for change in advice.changes:
        assert change.code
        if change.language == "python":
            compile(change.code, "<change>", "exec")
        if change.language == "json":
            json.loads(change.code)
    if advice.cost is not None:
        assert list(advice.cost) == sorted(advice.cost)
    if advice.effect is not None:
        low, expected, high = gains(advice, State(phases={"forward": 0.03, "backward": 0.06, "other": 0.01}, load=0.02))
        assert low <= expected + 1e-9
        assert expected <= high + 1e-9


def _tuple(value: str | tuple[str, ...]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else value


def _near(value: float, expected: float) -> bool:
    return math.isclose(value, expected, rel_tol=0, abs_tol=0.005)


def _like(value: float | None, expected: float) -> bool:
    return value is not None and math.isclose(value, expected, rel_tol=0.01)
