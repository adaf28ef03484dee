"""What the report says about each rank."""

import pytest
from profiles import metrics, rank, steps

from advisor.report.ranks import MOST_ROWS, Spread, ranks
from profiler.schema import TAG_FIRST, MemoryFact
from profiler.store import Stretches


def one(number, seconds=0.2, world=4, wait=0.05, **tables):
    """Return a rank of thirty steps that wait for data."""
    made = steps(*[seconds] * 30, data_wait=wait, forward=seconds - wait)
    return rank(number, **{"steps": made, "process": {"world_size": world}, **tables})


def of(*several, **tables):
    m = metrics(*several, **tables)
    return ranks(m, m.profile)


def test_rows_show_numbers_of_each_rank():
    held = (MemoryFact(id=0, reserved_peak=7), MemoryFact(id=1, reserved_peak=9))
    about = {"world_size": 4, "node_rank": 1, "events_lost": 5}
    found = of(one(0), one(2, 0.4, process=about, memory_peaks=held, host="there"))

    assert (found.count, found.unseen) == (2, (1, 3))
    first, second = found.rows
    assert (first.rank, first.node, first.host, first.steps, first.memory_peak) == (0, 0, None, 30, None)
    assert (second.rank, second.node, second.host, second.steps, second.memory_peak) == (2, 1, "there", 30, 9)
    assert second.step_time == 0.4
    assert second.phases == {"data_wait": pytest.approx(0.05), "forward": pytest.approx(0.35)}
    assert (first.events_lost, first.remark) == (0, "")
    assert second.events_lost == 5
    assert "5" in second.remark
    assert found.step_times == Spread(0.2, 0.4, 0.4)
    assert found.memory_peaks == Spread(9, 9, 9)


def test_absurd_world_size_is_capped(monkeypatch):
    monkeypatch.setattr("advisor.report.ranks.MOST_RANKS", 8)
    assert of(one(0, process={"world_size": 10**12})).unseen == (1, 2, 3, 4, 5, 6, 7)


def test_restarted_rank_counts_once():
    found = of(one(0, 0.3, 2), one(0, 0.2, 2), one(1, 0.2, 2))
    assert [(row.rank, row.step_time) for row in found.rows] == [(0, 0.3), (1, 0.2)]
    assert [row.phases["forward"] for row in found.rows] == [pytest.approx(0.25), pytest.approx(0.15)]


def test_what_was_not_measured_is_none():
    torn = one(1, 0.2, 2, steps=steps(0.2, tags=TAG_FIRST))
    found = of(one(0, 0.2, 2), torn)
    assert (found.rows[1].step_time, found.rows[1].phases) == (None, {})
    assert of(rank(0)).rows == ()
    assert of(one(0)).memory_peaks is None


def test_only_notable_ranks_of_many_are_listed():
    many = [one(number, 0.2, 4096) for number in range(4000)]
    many[777] = one(777, 0.2, 4096, process={"world_size": 4096, "events_lost": 1})
    found = of(*many, stretches=Stretches(100, 10))

    assert found.count == 4000
    assert found.unseen == tuple(range(4000, 4096))
    assert len(found.rows) <= MOST_ROWS
    assert {0, 777} <= {row.rank for row in found.rows}
    assert [row.rank for row in found.rows] == sorted(row.rank for row in found.rows)
    assert {row.steps for row in found.rows if row.rank} == {None}
    assert found.rows[0].steps == 30
    assert found.step_times == Spread(0.2, 0.2, 0.2)


def test_number_of_rows_is_bounded_if_all_ranks_lost_events():
    lost = {"world_size": 100, "events_lost": 1}
    assert len(of(*(one(number, process=lost) for number in range(100))).rows) == MOST_ROWS


def test_no_rank_stands_out_if_median_rank_only_communicates():
    def idle(number, communication):
        made = steps(*[0.2] * 30, communication=communication, forward=0.2 - communication)
        return one(number, world=5, steps=made)

    found = of(*(idle(number, 0.2) for number in range(4)), idle(4, 0.1))

    assert [row.remark for row in found.rows] == [""] * 5
