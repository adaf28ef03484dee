"""Functions of rows, without an engine."""

import pytest

from advisor.fleet.overview import choose, regressions, slow_hosts


def change(rule, alone, in_plan, script="train.py"):
    return {
        "project": None,
        "script": script,
        "rule": rule,
        "title": rule,
        "runs": 1,
        "alone": alone,
        "in_plan": in_plan,
    }


def plan(hours, script="train.py"):
    return {"project": None, "script": script, "hours": hours}


def test_changes_that_claim_the_same_time_save_it_once():
    """Both remove the same wait: 50 hours each alone, and 50 together."""
    chosen, total = choose([change("workers", 50.0, 50.0), change("cache", 50.0, 0.0)], [plan(50.0)])
    assert [(one.rule, one.saves) for one in chosen] == [("workers", 50.0)]
    assert total == 50.0


def test_total_savings_never_exceed_plan():
    chosen, _ = choose([change("a", 40.0, 40.0), change("b", 35.0, 30.0), change("c", 30.0, 20.0)], [plan(60.0)])
    assert sum(one.saves for one in chosen) == 60.0
    assert chosen[0].saves == 40.0


def test_changes_are_ranked_by_what_they_save_alone():
    chosen, _ = choose([change("a", 10.0, 10.0), change("b", 30.0, 22.0)], [plan(32.0)])
    assert [(one.rule, one.saves) for one in chosen] == [("b", 30.0), ("a", 2.0)]


def test_changes_to_different_scripts_add_up_and_three_are_chosen():
    advised = [change("a", float(hours), float(hours), f"{hours}.py") for hours in (1, 5, 3, 4)]
    chosen, total = choose(advised, [plan(float(hours), f"{hours}.py") for hours in (1, 5, 3, 4)])
    assert [one.saves for one in chosen] == [5.0, 4.0, 3.0]
    assert total == 13.0


def test_without_predicted_gains_nothing_is_chosen():
    assert choose([change("a", None, None)], [plan(None)]) == ([], 0.0)


def runs(commit, times, host="node1", first=0, work="w"):
    return [
        {
            "work": work,
            "commit_id": commit,
            "host": host,
            "project": None,
            "script": "train.py",
            "day": "2026-01-01",
            "started": float(first + index),
            "step_p50_s": time,
            "folder": "",
        }
        for index, time in enumerate(times)
    ]


STEADY = (0.100, 0.101, 0.099, 0.100)


def test_a_commit_that_slows_a_script_is_found():
    (found,) = regressions([*runs("b", [1.2 * each for each in STEADY], first=10), *runs("a", STEADY)])
    assert (found.before_name, found.after_name, found.runs) == ("a", "b", (4, 4))
    assert found.change == pytest.approx(0.2, abs=0.01)


@pytest.mark.parametrize(
    "after",
    [
        runs("b", [1.2 * each for each in STEADY[:3]], first=10),  # too few
        runs("b", [1.03 * each for each in STEADY], first=10),  # too little
        runs("b", [0.12, 0.12, 0.12, 0.1], first=10),  # one is as fast as before
        runs("b", [0.11, 0.18, 0.25, 0.14], first=10),  # scattered
        runs("b", [1.2 * each for each in STEADY], host="node2", first=10),  # elsewhere
        runs("b", [1.2 * each for each in STEADY], work="v", first=10),  # other work
        runs("b", [0.8 * each for each in STEADY], first=10),  # faster
        runs(None, [1.2 * each for each in STEADY], first=10),  # of an unknown commit
    ],
)
def test_difference_due_to_chance_or_other_work_is_no_regression(after):
    assert regressions([*runs("a", STEADY), *after]) == []


def test_a_host_that_is_slower_than_its_peers_is_found():
    rows = [each for name in ("node1", "node2", "node3") for each in runs("a", STEADY, host=name)]
    (found,) = slow_hosts([*rows, *runs("a", [1.3 * each for each in STEADY], host="node9")])
    assert (found.after_name, found.host, found.runs) == ("node9", "node9", (12, 4))


@pytest.mark.parametrize(
    "rows",
    [
        [*runs("a", STEADY, host="node1"), *runs("a", [0.13] * 4, host="node9")],  # one peer
        [each for i in range(3) for each in runs("a", STEADY, host=f"node{i}")]
        + runs("b", [0.13] * 4, host="node9"),  # another commit
        [each for i in range(4) for each in runs("a", STEADY, host=f"node{i}")],
        [each for i in range(4) for each in runs("a", STEADY, host=None)],
    ],
)
def test_a_host_is_not_blamed_without_peers_at_the_same_work(rows):
    assert slow_hosts(rows) == []
