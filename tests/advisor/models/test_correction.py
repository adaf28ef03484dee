"""An effect that trials have shown to be inaccurate, alone and within a plan."""

import pytest

from advisor.models.correction import corrected, nothing
from advisor.models.effects import divide, in_turn, relieve_host, remove, remove_seconds
from advisor.models.input_pipeline import Workers
from advisor.models.state import Scenario, State, removed

START = State(phases={"forward": 0.06, "other": 0.02}, load=0.02)
FOUND = (0.05, 0.1, 0.15)
HALF = remove("forward", shares=(0.5, 0.5, 0.5))


def share(effect, state, scenario=Scenario.EXPECTED):
    return removed(state, effect(state, scenario))


@pytest.mark.parametrize("scenario", Scenario)
def test_corrected_effect_alone_removes_measured_share(scenario):
    assert share(corrected(HALF, START, FOUND), START, scenario) == pytest.approx(scenario.of(FOUND))


def test_share_shrinks_with_the_phase_it_targets():
    """Of .1 s the model removes .03; with .04 s of forward left in .08 s, it removes .02 s, a quarter."""
    after = START.without("forward", 0.02)

    assert share(corrected(HALF, START, FOUND), after) == pytest.approx(0.1 * 0.25 / 0.3)


def test_gain_taken_by_other_changes_is_not_counted_again():
    after = START.without("forward", 0.06)

    assert share(corrected(HALF, START, FOUND), after) == pytest.approx(0.0)


def test_change_without_model_removes_measured_share_of_any_state():
    assert share(corrected(nothing, START, FOUND), START.without("forward", 0.06)) == pytest.approx(0.1)


def test_wider_interval_does_not_remove_whole_shortened_step():
    """With bf16, the host's launches are the floor: compiling then saves three times what it would save alone."""
    start = State(phases={"forward": 0.4}, launch=0.27, launch_idle=0.0)
    compiled = in_turn(
        divide("forward", by=(1.1, 1.2, 1.4)),
        relieve_host((0.3, 0.6, 0.8)),
    )
    after = start.without("forward", 0.29)
    modeled = [share(compiled, start, scenario) for scenario in Scenario]
    low, expected, high = modeled
    found = (low - 0.05, expected, high + 0.05)

    wider = [share(corrected(compiled, start, found), after, scenario) for scenario in Scenario]

    assert wider[1] == pytest.approx(share(compiled, after))  # the measured gain is the model's
    assert wider[0] < wider[1] < wider[2] < 0.9


def test_correction_scales_gain_limited_by_what_is_left_of_phase():
    """40 %, at most 80 %, of the exposed communication are to go; other changes have left less than that."""
    start = State(phases={"forward": 0.4, "communication": 0.6})
    hide = remove_seconds("communication", seconds=0.4, shares=(0.0, 0.4, 0.8))
    after = start.without("communication", 0.44).without("forward", 0.24)
    low, expected, high = (share(hide, start, scenario) for scenario in Scenario)

    most = share(corrected(hide, start, (low, expected, 1.25 * high)), after, Scenario.HIGH)

    assert share(hide, after, Scenario.HIGH) == pytest.approx(0.5)
    assert most == pytest.approx(1.25 * 0.5)


def test_measured_harm_stays_harm():
    assert share(corrected(HALF, START, (-0.3, -0.2, -0.1)), START) == pytest.approx(-0.2)


def test_removed_share_is_at_most_99_percent():
    assert share(corrected(HALF, START, (0.9, 0.95, 0.999)), START.without("other", 0.02)) <= 0.99


@pytest.mark.parametrize(
    "state",
    [
        State(phases={"forward": 0.1}, between={"evaluation": 0.05}, launch=0.3, matmul=0.01, membound=0.02),
        State(phases={"forward": 0.1}, load=0.2, supply=0.4, launch_idle=0.05),
        State(phases={"forward": 0.1}, workers=Workers(batch_time=0.6, worker_cpu_share=1.0, cores=3, host_cores=4)),
    ],
)
def test_scaling_state_scales_every_part(state):
    assert state.times(3).time == pytest.approx(3 * state.time)
    assert state.times(1) == state
