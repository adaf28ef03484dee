"""A typical step and the slowest one, to look into."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from profiles import rank, steps
from traces_made import GEMM, GPU, Made

from advisor.publish import report_of
from advisor.report.one_step import one_step
from advisor.report.render import html
from advisor.runs.profile import Profile
from advisor.runs.traces import load as load_traces
from profiler.importers import one_step as importer
from profiler.importers.analysis import analyze


def made(slow=5, kernels=1):
    """Return ten steps of 100 us with a kernel each; before the kernel of step `slow`, the host takes 300 us longer."""
    trace, at = Made(deviceProperties=[GPU]), 0
    for number in range(10):
        length = 400 if number == slow else 100
        trace.step(number, at, at + length)
        trace.host("aten::sort", at + 1, at + length - 55)
        for kernel in range(kernels):
            begin = at + length - 50 + 45 * kernel / kernels
            trace.gpu(GEMM, begin, begin + 40 / kernels, (begin - 2, begin - 1))
        at += length
    return trace


@pytest.fixture
def path(tmp_path):
    return made().write(tmp_path / "t.json")


def test_typical_and_slowest_step_are_shown_with_cause(path):
    typical, slowest = analyze(path).fact.looks

    assert (typical.which, slowest.which, slowest.number) == ("typical", "slowest", 5)
    assert (typical.seconds, slowest.seconds) == (pytest.approx(100e-6), pytest.approx(400e-6, rel=0.02))
    assert sum(slowest.parts.values()) == pytest.approx(slowest.seconds)
    (late,) = (each for each in slowest.stretches if each.part == "idle_launch")
    assert (late.host, late.seconds) == ("aten::sort", pytest.approx(360e-6, rel=0.05))
    found = report_of(load_traces([path])).one_step
    assert found.cause == ("idle_launch", pytest.approx(300e-6, rel=0.05))


def test_no_step_stands_out_where_all_are_alike(tmp_path):
    (typical,) = analyze(made(slow=None).write(tmp_path / "t.json")).fact.looks

    assert {lane.name.partition(" ")[0] for lane in typical.lanes} >= {"GPU", "Stream", "Host:"}


def test_neighboring_items_are_merged_without_loss(tmp_path, monkeypatch):
    monkeypatch.setattr(importer, "MOST", 60)
    (typical,) = analyze(made(slow=None, kernels=300).write(tmp_path / "t.json")).fact.looks
    (stream,) = (lane for lane in typical.lanes if lane.name.startswith("Stream"))

    assert typical.tick > 0
    assert sum(len(lane.items) for lane in typical.lanes) <= 60
    assert sum(item[5] for item in stream.items) >= 299
    assert all(item[0] >= 0 and item[0] + item[1] <= round(typical.seconds * 1e9) for item in stream.items)


def test_a_run_without_windows_shows_the_lengths_of_phases():
    times = [0.1] * 9 + [0.3]
    recorded = [replace(step, data_wait=step.duration - 0.05, forward=0.05, backward=None) for step in steps(*times)]
    found = one_step(Profile(runs=(), ranks=(replace(rank(0), steps=tuple(recorded)),)))

    assert not found.placed
    assert found.cause == ("data_wait", pytest.approx(0.2))
    assert [item[1] for item in found.typical.lanes[0].items] == [50_000_000, 50_000_000]


def test_advice_links_to_its_place(path):
    report = report_of(load_traces([path]))
    page = html.render(report)

    linked = [item.rule for item in report.advice if report.one_step.place(item.rule)]
    assert len(re.findall(r'<p class="small"><a href="#one-step-0-', page)) == len(linked)
    assert 'id="one-step-data"' in page
    assert 'id="one-step-0-idle_launch"' in page
