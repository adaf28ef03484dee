"""How often to save: compared with Daly 2006 and hand-computed numbers. Times in seconds."""

import pytest

from advisor.plan.interval import IntervalPlan
from profiler.errors import ProfilerError

HOUR = 3600.0


@pytest.mark.parametrize(
    ("save", "restart", "mtbf", "best", "inflated"),
    [(5, 10, 1440, 116.7, 1.096), (5, 10, 360, 56.7, 1.220), (5, 10, 15, 9.14, 5.01)],
)
def test_best_interval_follows_daly(save, restart, mtbf, best, inflated):
    """Daly's own numbers, in minutes."""
    plan = IntervalPlan(between_failures=60 * mtbf, save=60 * save, restart=60 * restart)

    assert plan.best / 60 == pytest.approx(best, rel=0.001)
    assert plan.inflated == pytest.approx(inflated, rel=0.001)


@pytest.mark.parametrize(("save", "mtbf", "young"), [(5, 2, 4.5), (20, 4, 12.6), (120, 24, 75.9)])
def test_youngs_interval(save, mtbf, young):
    assert IntervalPlan(between_failures=mtbf * HOUR, save=save).young / 60 == pytest.approx(young, abs=0.05)


def test_spot_pays_where_failures_are_rare():
    plan = IntervalPlan(between_failures=2 * HOUR, save=20, restart=300, discount=0.65, gpu_price=2.5, gpus=8)

    assert plan.best == pytest.approx(523, abs=1)
    assert plan.inflated == pytest.approx(1.124, abs=0.001)
    assert plan.cost_ratio == pytest.approx(0.394, abs=0.001)
    assert plan.break_even == pytest.approx(0.11, abs=0.001)
    assert "0.98 instead of 2.50, on all 8 of them 7.87 instead of 20.00" in plan.verdict


def test_spot_does_not_pay_where_failures_are_frequent():
    plan = IntervalPlan(between_failures=1800, save=60, restart=600, discount=0.3)

    assert plan.best == pytest.approx(426, abs=1)
    assert plan.inflated == pytest.approx(1.828, abs=0.001)
    assert plan.break_even == pytest.approx(0.453, abs=0.001)
    assert plan.cost_ratio == pytest.approx(1.28, abs=0.005)
    assert plan.verdict


def test_without_a_discount_there_is_no_verdict():
    plan = IntervalPlan(between_failures=2 * HOUR, save=20)

    assert plan.cost_ratio is None
    assert plan.verdict is None
    assert any("--restart-cost" in remark for remark in plan.remarks)


def test_table_shows_cost_of_other_intervals():
    plan = IntervalPlan(between_failures=7200, save=20, restart=300, interval=1800)
    table = {interval: inflated for interval, inflated, _ in plan.table}

    assert [table[each] for each in (60, 300, 1800, 3600)] == pytest.approx([1.398, 1.137, 1.199, 1.362], abs=0.001)
    assert min(table, key=table.__getitem__) == plan.best
    assert [what for interval, _, what in plan.table if interval == 1800] == ["now"]
    assert any("1.2 times" in remark and "6.3%" in remark for remark in plan.remarks)


def test_too_long_interval_gets_a_remark():
    plan = IntervalPlan(between_failures=7200, save=20, interval=10000 * HOUR)

    assert any("2 h between" in remark and "infinitely" in remark for remark in plan.remarks)


def test_mtbf_is_divided_by_number_of_nodes():
    plan = IntervalPlan(between_failures=40 * HOUR, save=20, nodes=20)

    assert plan.mtbf == pytest.approx(2 * HOUR)
    assert plan.best == pytest.approx(IntervalPlan(between_failures=2 * HOUR, save=20).best)


def test_async_saves_are_more_frequent_and_cheaper_but_do_not_overlap():
    plan = IntervalPlan(between_failures=2 * HOUR, save=60, restart=300, async_save=2)
    slow = IntervalPlan(between_failures=2 * HOUR, save=1200, restart=300, async_save=2)

    assert plan.best_async == pytest.approx(IntervalPlan(between_failures=2 * HOUR, save=2).best)
    assert plan.inflated < plan.inflation(plan.best)
    assert slow.best_async == 1200


@pytest.mark.parametrize(
    "wrong",
    [
        {"between_failures": 60, "save": 60},
        {"between_failures": 600, "save": 10, "async_save": 20},
        {"between_failures": 60, "save": 1, "restart": 1e6},
    ],
)
def test_impossible_input_gives_message_and_remedy(wrong):
    with pytest.raises(ProfilerError) as raised:
        IntervalPlan(**wrong)

    assert raised.value.message.endswith(".")
    assert raised.value.remedy.endswith(".")
