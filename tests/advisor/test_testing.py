"""The assertions of a rule's cases, with which others test rules: each can fail."""

import pytest

from advisor.metrics.base import Missing
from advisor.metrics.step import step_time_mean
from advisor.models.state import State
from advisor.rules.base import Advice, Area, Change, Confidence, Evidence, Measurement, Rule
from advisor.testing import DoesNotFire, Fires, NotMeasured, given

SLOW, FAST, UNKNOWN = given({step_time_mean: 2.0}), given({step_time_mean: 0.5}), given({})
HALVED = State(phases={"forward": 2.0})


def when(m):
    """If a step takes more than a second,"""
    return Evidence((Measurement(step_time_mean, m[step_time_mean], 1.0, ">"),)) if m[step_time_mean] > 1 else None


def then(m, found):
    """then ask."""
    return Advice(
        then="Ask.",
        changes=(Change(language="python", code="ask()"),),
        basis="None.",
        risk="None.",
        effect=lambda state, scenario: state.scaled("forward", 0.5),
        memory=-1000,
    )


RULE = Rule(
    title="Ask", area=Area.MODEL, when=when, then=then, confidence=Confidence.HEURISTIC, difficulty=1, sources=()
)


@pytest.mark.parametrize(
    "case",
    [
        Fires(
            "fires", SLOW, code="ask()", absent="no", then="Ask", memory=-1005, state=HALVED, removed=(0.5, 0.5, 0.504)
        ),
        DoesNotFire("does not fire", FAST),
        NotMeasured("is not measured", UNKNOWN),
    ],
    ids=lambda case: case.sentence,
)
def test_correct_cases_pass(case):
    case.check(RULE)


@pytest.mark.parametrize(
    "case",
    [
        Fires("does not fire", FAST),
        Fires("other code", SLOW, code="tell()"),
        Fires("more memory", SLOW, memory=-1020),
        Fires("host memory that is not predicted", SLOW, host_memory=5),
        Fires("less gain", SLOW, state=HALVED, removed=(0.4, 0.5, 0.5)),
        Fires("no gain at all", SLOW, no_gain=True),
        DoesNotFire("fires", SLOW),
        NotMeasured("does not fire, but is measured", FAST),
        NotMeasured("fires", SLOW),
    ],
    ids=lambda case: case.sentence,
)
def test_incorrect_cases_fail(case):
    with pytest.raises(AssertionError):
        case.check(RULE)


def test_missing_metric_of_case_is_named():
    with pytest.raises(Missing, match="step_time_mean"):
        UNKNOWN[step_time_mean]
