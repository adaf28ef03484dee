"""How long a trial is: computed by hand."""

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
        (0.3, 0.1, 48),  # 2 (2.80 x .3 / .1)^2 = 142, by three processes
        (0.3, 0.001, MOST_STEPS),  # less than 3 % is not looked for
    ],
)
def test_steps_follow_from_the_cautious_end_of_the_prediction(cv, low, needed):
    assert steps_needed(Pace(0.1, cv), finding(low), processes=3) == WARM_UP + needed


def test_what_comes_now_and_then_is_waited_for_twice():
    assert steps_needed(Pace(0.1, 0.05, 60), finding(0.5), processes=3) == WARM_UP + 120
    assert steps_needed(Pace(0.1, 0.05, 900), finding(0.5), processes=3) == WARM_UP + MOST_STEPS


def test_a_gain_that_lies_between_steps_alone_is_waited_for_however_long():
    assert steps_needed(Pace(0.1, 0.05, 900), finding(0.5, "epoch_start"), processes=3) == WARM_UP + 1800


def test_the_pace_knows_how_often_epochs_begin():
    made = list(steps(*[0.1] * 200))
    for index in (0, 50, 100, 150):
        tags = TAG_EPOCH_START | (TAG_FIRST if index == 0 else 0)
        made[index] = replace(made[index], tags=tags, epoch_start=1.0)
    pace = pace_of(metrics(rank(steps=tuple(made))))

    assert pace.step_time == pytest.approx(0.1 + 3 / 200)
    assert pace.period == 67


def test_the_first_epoch_alone_is_none_that_comes_again():
    made = list(steps(*[0.1] * 200))
    made[0] = replace(made[0], tags=TAG_EPOCH_START | TAG_FIRST, epoch_start=30.0)

    assert pace_of(metrics(rank(steps=tuple(made)))).period == 1


def test_a_run_without_steps_has_no_pace():
    with pytest.raises(ProfilerError, match="nothing to compare"):
        pace_of(metrics(rank()))


def test_a_trial_takes_as_long_as_the_recorded_run_took_to_start_and_to_step():
    """Two processes each way: to the first step 3 s, then 50 steps of .1 s, of which the change takes two fifths."""
    pace = pace_of(metrics(rank(steps=tuple(replace(step, start=step.start + 3) for step in steps(*[0.1] * 50)))))

    start = min(step.start for step in steps(0.1)) + 3
    assert pace.start_up == pytest.approx(start)
    assert pace.duration(2, 50) == pytest.approx(LONGER * 4 * (AROUND + start + 5))
    assert pace.duration(2, 50, (0.3, 0.4, 0.5)) == pytest.approx(LONGER * (4 * (AROUND + start) + 2 * (5 + 3)))
