"""An effect that trials have shown to be off, alone and within a plan."""

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
def test_alone_it_removes_what_was_found(scenario):
    assert share(corrected(HALF, START, FOUND), START, scenario) == pytest.approx(scenario.of(FOUND))


def test_where_half_of_what_it_is_about_is_gone_half_of_the_share_is_left():
    """Of .1 s the model removes .03; of .08 s with .04 of forward .02 s, a quarter."""
    after = START.without("forward", 0.02)

    assert share(corrected(HALF, START, FOUND), after) == pytest.approx(0.1 * 0.25 / 0.3)


def test_what_others_have_brought_it_does_not_bring_once_more():
    after = START.without("forward", 0.06)

    assert share(corrected(HALF, START, FOUND), after) == pytest.approx(0.0)


def test_a_change_without_a_model_removes_what_was_found_of_any_state():
    assert share(corrected(nothing, START, FOUND), START.without("forward", 0.06)) == pytest.approx(0.1)


def test_where_the_rest_got_short_a_wider_interval_does_not_take_the_whole_step():
    """bf16 leaves the host's launches as the floor: compiling then brings three times what it would bring alone."""
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

    assert wider[1] == pytest.approx(share(compiled, after))  # what was found is what the model says
    assert wider[0] < wider[1] < wider[2] < 0.9


def test_of_a_phase_that_got_short_no_more_goes_than_is_left():
    """40 of 80 % of the exposed communication are to go, of which others have left less than that."""
    start = State(phases={"forward": 0.4, "communication": 0.6})
    hide = remove_seconds("communication", seconds=0.4, shares=(0.0, 0.4, 0.8))
    after = start.without("communication", 0.44).without("forward", 0.24)
    low, expected, high = (share(hide, start, scenario) for scenario in Scenario)

    most = share(corrected(hide, start, (low, expected, 1.25 * high)), after, Scenario.HIGH)

    assert share(hide, after, Scenario.HIGH) == pytest.approx(0.5)
    assert most == pytest.approx(1.25 * 0.5)


def test_harm_is_harm():
    assert share(corrected(HALF, START, (-0.3, -0.2, -0.1)), START) == pytest.approx(-0.2)


def test_a_step_keeps_some_of_its_time():
    assert share(corrected(HALF, START, (0.9, 0.95, 0.999)), START.without("other", 0.02)) <= 0.99


@pytest.mark.parametrize(
    "state",
    [
        State(phases={"forward": 0.1}, between={"evaluation": 0.05}, launch=0.3, matmul=0.01, membound=0.02),
        State(phases={"forward": 0.1}, load=0.2, supply=0.4, launch_idle=0.05),
        State(phases={"forward": 0.1}, workers=Workers(t_w=0.6, u_w=1.0, cores=3, host_cores=4)),
    ],
)
def test_a_longer_step_is_longer_in_every_part(state):
    assert state.times(3).time == pytest.approx(3 * state.time)
    assert state.times(1) == state
