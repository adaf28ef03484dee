"""How long a trial takes, computed by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from profiles import metrics, rank, steps

from advisor.judging.judge import Estimate, Finding
from advisor.models.effects import remove
from advisor.rules import all_rules
from advisor.rules.base import Advice, Evidence, Severity
from advisor.verify.arm import WARM_UP
from advisor.verify.pace import AROUND, LEAST_STEPS, LONGER, MOST_STEPS, Pace, pace_of, steps_needed
from profiler.errors import ProfilerError
from profiler.schema import TAG_EPOCH_START, TAG_FIRST


def finding(low, phase="forward"):
    effect = remove(phase, shares=(low, low, low))
    return Finding(
        rule=all_rules()[0],
        severity=Severity.ACTION,
        evidence=Evidence(()),
        advice=Advice(then="", changes=(), basis="", risk="", effect=effect),
        alone=Estimate(low, low, low),
        in_plan=None,
        score=1.0,
    )


@pytest.mark.parametrize(
    ("cv", "low", "needed"),
    [
        (0.05, 0.5, LEAST_STEPS),
        (0.3, 0.1, 48),  # 2 (2.80 x .3 / .1)^2 = 142, over three processes
        (0.3, 0.001, MOST_STEPS),  # nothing below 3 % is looked for
    ],
)
def test_steps_needed_follow_from_lower_bound_of_prediction(cv, low, needed):
    assert steps_needed(Pace(0.1, cv), finding(low), processes=3) == WARM_UP + needed


def test_trial_covers_two_periods_up_to_step_limit():
    assert steps_needed(Pace(0.1, 0.05, 60), finding(0.5), processes=3) == WARM_UP + 120
    assert steps_needed(Pace(0.1, 0.05, 900), finding(0.5), processes=3) == WARM_UP + MOST_STEPS


def test_step_limit_does_not_apply_to_gain_between_steps():
    assert steps_needed(Pace(0.1, 0.05, 900), finding(0.5, "epoch_start"), processes=3) == WARM_UP + 1800


def test_pace_includes_period_of_epoch_starts():
    made = list(steps(*[0.1] * 200))
    for index in (0, 50, 100, 150):
        tags = TAG_EPOCH_START | (TAG_FIRST if index == 0 else 0)
        made[index] = replace(made[index], tags=tags, epoch_start=1.0)
    pace = pace_of(metrics(rank(steps=tuple(made))))

    assert pace.step_time == pytest.approx(0.1 + 3 / 200)
    assert pace.period == 67


def test_first_epoch_start_alone_has_no_period():
    made = list(steps(*[0.1] * 200))
    made[0] = replace(made[0], tags=TAG_EPOCH_START | TAG_FIRST, epoch_start=30.0)

    assert pace_of(metrics(rank(steps=tuple(made)))).period == 1


def test_a_run_without_steps_has_no_pace():
    with pytest.raises(ProfilerError, match="nothing to compare"):
        pace_of(metrics(rank()))


def test_trial_duration_follows_from_recorded_startup_and_step_time():
    """Two processes each way: 3 s to the first step, then 50 steps of .1 s, of which the change removes two fifths."""
    pace = pace_of(metrics(rank(steps=tuple(replace(step, start=step.start + 3) for step in steps(*[0.1] * 50)))))

    start = min(step.start for step in steps(0.1)) + 3
    assert pace.start_up == pytest.approx(start)
    assert pace.duration(2, 50) == pytest.approx(LONGER * 4 * (AROUND + start + 5))
    assert pace.duration(2, 50, (0.3, 0.4, 0.5)) == pytest.approx(LONGER * (4 * (AROUND + start) + 2 * (5 + 3)))
