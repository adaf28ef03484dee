"""Many ranks: a report says which ones stand out, sums up the others, and stays as small as a report on a few ranks."""

import json
from pathlib import Path

import jsonschema
import pytest
from benchmarked import imports
from profiles import metrics, rank

from advisor.metrics.base import Metrics
from advisor.metrics.communication import common_steps, straggler_skew
from advisor.metrics.stretches import in_stretches
from advisor.publish import publish
from advisor.report.ranks import ranks
from advisor.runs import load as module
from advisor.runs.load import load
from profiler.schema import Step
from profiler.store import Stretches

ROOT = Path(__file__).parents[1]
RANKS = 64


@pytest.fixture(scope="module")
def scale():
    """Return the benchmark that makes such runs."""
    with imports(".") as name:
        yield name("scale")


@pytest.fixture(scope="module")
def run(scale, tmp_path_factory):
    folder = tmp_path_factory.mktemp("many")
    return scale.make(folder / "run", RANKS, scale.node(folder, 400))


def test_a_report_on_many_ranks_names_those_that_stand_out_and_is_small(run, scale):
    report = publish(run)

    slow, hot, lost = scale.ill(RANKS)
    assert report.ranks.many == RANKS
    assert [one.rank for one in report.ranks.named] == [slow, lost]
    assert "forward" in report.ranks.named[0].why
    assert "1,000" in report.ranks.named[1].why
    advice = {item.rule: item.finding.advice.then for item in report.advice}
    assert f"rank {slow}" in advice["straggler-rank"]
    assert f"GPU {hot}" in advice["gpu-throttled"]
    for chart in report.charts:
        assert len({curve.label for curve in chart.curves}) <= 16
    assert any(curve.label == f"rank {slow} (slowest)" for curve in report.charts[0].curves)
    result = json.loads((run / "result.json").read_text())
    jsonschema.validate(result, json.loads((ROOT / "docs" / "result.schema.json").read_text()))
    assert len(result["environment"]) < 40
    sizes = {name: (run / name).stat().st_size for name in ("report.html", "report.md", "result.json")}
    assert sizes["report.html"] < 3e6
    assert sizes["report.md"] < 2e4
    assert sizes["result.json"] < 1e5


def test_rows_of_many_ranks_are_sampled_except_the_primary_ones(run, monkeypatch):
    whole = load(run)
    monkeypatch.setattr(module, "MOST_STEPS", 64 * RANKS)
    monkeypatch.setattr(module, "MOST_SAMPLES", 64 * RANKS)
    thin = load(run)

    assert sum(len(rank.steps) for rank in thin.ranks[1:]) <= 1.5 * 64 * RANKS
    assert thin.ranks[0].steps == whole.ranks[0].steps
    assert len(thin.gpu_samples) < len(whole.gpu_samples) / 2
    assert {sample.gpu for sample in thin.gpu_samples} == set(range(RANKS))
    assert Metrics(thin)[straggler_skew] == pytest.approx(Metrics(whole)[straggler_skew], rel=0.1)
    assert ranks(Metrics(thin), thin).named[0].rank == RANKS - 1


def test_ranks_whose_rows_were_merged_at_other_steps_are_compared_by_stretches():
    def merged(first, forward):
        each = {"pid": 1, "duration": 1.0, "count": 8, "forward": forward, "communication": 1.0 - forward}
        return tuple(Step(index=first + 8 * n, start=float(first + 8 * n), **each) for n in range(200))

    both = {"world_size": 2}
    m = metrics(rank(0, steps=merged(0, 0.5), process=both), rank(1, steps=merged(1, 0.75), process=both))

    first, second = m[common_steps]
    assert len(first) == len(second) > 10
    assert m[straggler_skew] == pytest.approx(0.5)


def test_a_stretch_is_the_mean_of_the_steps_that_begin_in_it():
    steps = [
        Step(pid=1, index=0, start=0.0, duration=1.0, forward=0.5, backward=0.2),
        Step(pid=1, index=1, start=1.0, duration=4.0, count=2, forward=2.0),
        Step(pid=1, index=3, start=9.0, duration=9.0, forward=9.0),
        Step(pid=1, index=10, start=20.0, duration=2.0, forward=1.0),
    ]

    found = in_stretches(steps, Stretches(10, 3))

    assert sorted(found) == [0, 1]
    assert (found[0].count, found[0].duration, found[0].forward) == (3, pytest.approx(3.0), pytest.approx(1.5))
    assert found[0].backward is None, "one of them was not measured"
    assert found[1].duration == 2.0


def test_stretches_are_as_long_as_the_share_and_hold_rows():
    assert Stretches.over(3200, 1.0, 1.0) == Stretches(100, 100)
    assert Stretches.over(3200, 0.25, 1.0) == Stretches(100, 25)
    assert Stretches.over(3200, 0.01, 10.0) == Stretches(2000, 20), "longer, so that two rows of ten begin in each"
