"""Timelines that Perfetto and our own importer can read."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from collections import defaultdict
from dataclasses import replace

import pytest

from advisor.export import chrome
from advisor.export.nodes import Node, nodes
from advisor.metrics.base import Metrics
from advisor.metrics.step import backward_fraction, data_wait_fraction, forward_fraction, step_time_mean
from advisor.publish import report_of
from advisor.report.wording import diagnosis
from advisor.runs.clocks import Clock
from advisor.runs.load import load
from advisor.runs.profile import Profile, Rank
from advisor.runs.traces import load as load_traces
from profiler.schema import TAG_EVALUATION, Process, Run, Step
from profiler.store import Tables


def written(found, path, profile=None):
    found = list(found)
    chrome.write(found, Metrics(profile or profile_of(found)), path)
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as file:
        return json.load(file)


@pytest.fixture
def timeline(folder, tmp_path):
    profile = load(folder)
    return written(nodes(folder, profile), tmp_path / "timeline.json", profile)


def of(timeline, phase):
    return [event for event in timeline["traceEvents"] if event["ph"] == phase]


def named(timeline, kind):
    return {(e["pid"], e["tid"]): e["args"]["name"] for e in of(timeline, "M") if e["name"] == kind}


def test_every_event_has_required_fields(timeline):
    asked = {
        "X": {"name", "cat", "ph", "ts", "dur", "pid", "tid"},
        "C": {"name", "ph", "ts", "pid", "args"},
        "i": {"name", "ph", "ts", "pid", "tid", "s"},
        "M": {"name", "ph", "pid", "args"},
    }
    for event in timeline["traceEvents"]:
        assert asked[event["ph"]] <= event.keys()
        assert all(type(event[key]) is int for key in ("pid", "tid"))
        assert event.get("ts", 0) >= 0
        assert event.get("dur", 0) >= 0
    assert all(type(event["args"]["value"]) in (int, float) for event in of(timeline, "C"))


def test_times_are_in_order(timeline):
    times = [event["ts"] for event in timeline["traceEvents"] if "ts" in event]

    assert times == sorted(times)


def test_ranges_of_thread_nest_or_do_not_overlap(timeline):
    threads = defaultdict(list)
    for event in of(timeline, "X"):
        threads[event["pid"], event["tid"]].append(
            (round(event["ts"] * 1e3), round((event["ts"] + event["dur"]) * 1e3))
        )
    for ranges in threads.values():
        around = []
        for start, end in ranges:  # in the order of the file, as Perfetto nests them
            while around and around[-1] <= start:
                around.pop()
            assert not around or end <= around[-1]
            around.append(end)


def test_each_rank_host_and_gpu_is_a_process(timeline):
    assert list(named(timeline, "process_name").values()) == [
        "rank 0 (pid 10, a)",
        "rank 1 (pid 11, a)",
        "host a",
        "GPU 0: <b>H200</b> (a)",
        "rank 2 (pid 10, b)",
        "host b",
    ]
    order = [event["args"]["sort_index"] for event in of(timeline, "M") if event["name"] == "process_sort_index"]
    assert order[:2] + order[4:5] == [0, 1, 2]
    assert min(order[2:4] + order[5:]) > 2
    assert [name for (process, _), name in named(timeline, "thread_name").items() if process == 1] == [
        "loop",
        "loader worker 0 (pid 12)",
        "recorder",
    ]


def test_the_nodes_are_on_one_clock(timeline):
    starts = {event["pid"]: event["ts"] for event in reversed(of(timeline, "X")) if event["tid"] == 0}

    assert starts == {1: 1e6, 2: 1.05e6, 5: 1e6}


def test_step_contains_its_phases_with_work_between_steps_first(timeline):
    (step,) = [event for event in of(timeline, "X") if event["name"] == "ProfilerStep#50"]
    inside = [e for e in of(timeline, "X") if e["ts"] >= step["ts"] and e["pid"] == 1 and e["cat"] == "cpu_op"]

    assert (step["ts"], step["dur"]) == (6.5e6, 1e6)
    assert step["args"]["tags"] == ["evaluation"]
    assert [(e["name"], e["ts"], e["dur"]) for e in inside] == [("evaluation", 6.5e6, 0.9e6), ("other", 7.4e6, 0.1e6)]


def test_unmeasured_values_have_no_point(timeline):
    points = [(e["name"], e["ts"], e["args"]["value"]) for e in of(timeline, "C") if e["pid"] == 4]

    assert points == [
        ("utilization", 2e6, 0.75),
        ("memory_used_bytes", 2e6, 2**30),
        ("power_watts", 3e6, 300.0),
    ]
    queue = [event["ts"] for event in of(timeline, "C") if event["name"] == "loader queue (batches)"]
    assert (len(queue), queue[0]) == (30, 3.5e6)
    assert {"cuda:0 allocated_bytes", "cpu_cores", "rss_bytes"} <= {event["name"] for event in of(timeline, "C")}


def test_problem_is_instant_event_of_its_rank(timeline):
    (problem,) = of(timeline, "i")

    assert (problem["pid"], problem["ts"]) == (2, 4e6)
    assert problem["args"]["message"].startswith('=HYPERLINK("http://evil")</script>')


@pytest.mark.parametrize("name", ["timeline.json", "timeline.json.gz"])
def test_trace_reader_finds_same_steps_in_export(tmp_path, folder, name):
    chrome.write(nodes(folder, load(folder)), Metrics(load(folder)), tmp_path / name)
    profile = load_traces([tmp_path / name])
    recorded, read = load(folder).ranks[0].steps, profile.ranks[0].steps

    assert profile.ranks[0].process.rank == 0
    assert profile.problems == ()
    assert [step.index for step in read] == [step.index for step in recorded]
    whole = [step.duration + (step.evaluation or 0.0) for step in recorded]
    whole[19] += 0.5  # the pause after it: a trace records only where steps begin
    assert [step.duration for step in read] == pytest.approx(whole)


def test_report_on_exported_trace_has_same_step_metrics(tmp_path):
    steps = tuple(
        Step(pid=1, index=n, start=n / 10, duration=0.1, data_wait=0.06, forward=0.01, backward=0.03) for n in range(60)
    )
    node = a_node(steps)
    chrome.write([node], Metrics(profile_of([node])), tmp_path / "t.json")
    m = Metrics(load_traces([tmp_path / "t.json"]))

    assert [m[one] for one in (step_time_mean, data_wait_fraction, forward_fraction, backward_fraction)] == (
        pytest.approx([0.1, 0.6, 0.1, 0.3])
    )
    assert "step takes 100 ms" in diagnosis(report_of(load_traces([tmp_path / "t.json"])))


def profile_of(found):
    ranks = sorted((rank.process for node in found for rank in node.ranks), key=lambda process: process.rank)
    return Profile(runs=tuple(node.run for node in found), ranks=tuple(Rank(process=rank) for rank in ranks))


def a_node(steps, **tables):
    run = Run(
        id="r",
        command=("train.py",),
        cwd="/",
        host="h",
        started_at=0.0,
        cores=2.0,
        cores_total=2,
        memory_total=2**30,
        platform="Linux",
        python="3.11",
        version="0.1.0",
    )
    processes = tuple(Process(pid=pid, rank=pid, started=0.0) for pid in sorted({step.pid for step in steps}))
    return Node(run, Tables(runs=(run,), processes=processes, steps=tuple(steps), **tables), Clock())


def test_merged_steps_are_one_range_and_only_later_steps_are_marked(tmp_path):
    merged = Step(pid=1, index=0, start=0.0, duration=0.1, count=8, forward=0.05)
    inside, late = (Step(pid=1, index=n, start=n / 10, duration=0.1, tags=TAG_EVALUATION) for n in (4, 9))
    rest = [Step(pid=1, index=10 + n, start=1.0 + n / 10, duration=0.1, backward=0.1) for n in range(5)]
    made = written([a_node([merged, inside, late, *rest])], tmp_path / "t.json")

    steps = [(e["name"], e["tid"], e["dur"]) for e in of(made, "X") if e["cat"] in ("step", "user_annotation")]
    assert steps[:3] == [("8 steps from 0", 0, 0.8e6), ("step 4", 1, 0.1e6), ("step 9", 0, 0.1e6)]
    assert [name for (process, _), name in named(made, "thread_name").items()] == ["loop", "loop (2)"]
    profile = load_traces([tmp_path / "t.json"])
    assert [step.index for step in profile.ranks[0].steps] == [10, 11, 12, 13, 14]
    assert [step.duration for step in profile.ranks[0].steps] == pytest.approx([0.1] * 5)


def test_times_stay_positive_if_another_node_started_earlier(tmp_path):
    clock = Clock(offset=3.0)
    first, sooner = (a_node([Step(pid=pid, index=0, start=0.5, duration=0.1)]) for pid in (1, 2))
    profile = profile_of([first, sooner])
    ranks = (profile.ranks[0], replace(profile.ranks[1], clock=clock))
    made = written([first, replace(sooner, clock=clock)], tmp_path / "t.json", replace(profile, ranks=ranks))

    assert {event["pid"]: event["ts"] for event in of(made, "X")} == {1: 3.5e6, 3: 0.5e6}


def test_steps_with_invalid_times_are_skipped(tmp_path):
    steps = [
        Step(pid=1, index=0, start=float("inf"), duration=0.1),
        Step(pid=1, index=1, start=0.0, duration=float("inf")),
        Step(pid=1, index=2, start=0.0, duration=-1.0),
        Step(pid=1, index=3, start=1.0, duration=0.1, queue_depth=float("inf"), batches=float("inf")),
    ]
    made = written([a_node(steps)], tmp_path / "t.json")

    assert [event["name"] for event in of(made, "X")] == ["ProfilerStep#3"]


def test_trace_is_written_incrementally(tmp_path):
    """A timeline is built on disk, not in memory."""
    steps = [Step(pid=pid, index=n, start=n / 10, duration=0.1, forward=0.1) for pid in (1, 2) for n in range(3000)]
    node = a_node(steps)
    profile = profile_of([node])
    tracemalloc.start()
    chrome.write([node], Metrics(profile), tmp_path / "t.json")
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert (tmp_path / "t.json").stat().st_size > 1_500_000
    assert most < 1_000_000
