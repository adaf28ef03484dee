"""The recording of a training run matches what its GPU did."""

from collections import Counter
from functools import cache
from statistics import median

import pytest
from fake_gpu_scenes import SCENES, SETTLED, record, steps
from fake_gpu_truth import Truth

NEAR = 0.03
"""Largest relative difference between a value and the truth."""
SHORTEST = 0.010
"""Seconds of the shortest phase that a scene simulates: for a shorter one, NEAR times this is the largest
difference."""

RANKS = [(name, rank) for name, scene in SCENES.items() for rank in range(scene.ranks)]
PHASES = ("duration", "forward", "backward", "optimizer", "other", "data")


@pytest.fixture(scope="session")
def scene(tmp_path_factory):
    """Return a function that returns a scene's recording and the truth about a rank."""
    base = tmp_path_factory.getbasetemp()
    shared = (base.parent if base.name.startswith("popen-") else base) / "scenes"

    @cache
    def recorded(name):
        return record(name, shared)

    @cache
    def known(name, rank=0):
        return recorded(name), Truth(recorded(name), rank)

    return known


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize(("name", "rank"), RANKS)
def test_phase_time_matches_simulated_gpu(scene, name, rank, phase):
    run, truth = scene(name, rank)
    columns = ("data_wait", "loader_overhead") if phase == "data" else (phase,)
    pairs = [
        (sum(getattr(step, column) for column in columns), known[phase])
        for step, known in list(zip(measured(run, truth), truth.steps, strict=True))[SETTLED:]
        if step is not None
    ]
    assert len(pairs) >= 8
    assert abs(median(seconds - known for seconds, known in pairs)) <= NEAR * max(truth.typical(phase), SHORTEST)


def measured(run, truth):
    """Return a rank's steps; None for those with a tag, and for those that were estimated.

    On a busy machine marks cost more and pause: a step then has the shares of the step before, with another duration.
    """
    found, before = [], None
    for step in steps(run, truth.pid):
        share = step.backward / step.duration if step.backward else None
        alike = before and share and abs(share - before[0]) < 1e-9 and abs(step.duration - before[1]) > 1e-6
        found.append(None if step.tags or share is None or alike else step)
        before = (share, step.duration) if share else None
    return found


@pytest.mark.parametrize(("phase", "seconds"), [("forward", 0.020), ("backward", 0.040), ("optimizer", 0.010)])
@pytest.mark.parametrize("name", ["plain", "other on a slow GPU", "memory and side stream"])
def test_spin_kernels_take_at_least_their_configured_time(scene, name, phase, seconds):
    _, truth = scene(name)
    assert truth.typical(phase) >= seconds


@pytest.mark.parametrize("name", SCENES)
def test_program_completes_without_leaking_events(scene, name):
    run, _ = scene(name)
    assert run.status == 0
    assert run.run.outcome == "completed"
    assert max(run.live("events")) < 600


COLUMNS = ("duration", "busy", "communication", "communication_exposed", "h2d", "h2d_pageable", "idle_data", "idle")
IDLE = ("idle_sync", "idle_launch", "idle_other")
CAUSES = {"sync": "idle_sync", "copies": "idle_sync", "slow host": "idle_launch"}
"""The kind of idle time of a scene's GPU."""


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("name", SCENES)
def test_window_matches_simulated_gpu_activity(scene, name, column):
    run, truth = scene(name)
    windows = [window for window in run.tables.windows if window.device == "cuda"]
    assert windows
    for window in windows:
        begin = run.run.started_at + window.start
        known = truth.shares(begin, begin + window.duration)
        reported = sum(getattr(window, each) for each in IDLE) if column == "idle" else getattr(window, column)
        assert abs(reported - known[column]) <= NEAR * max(known[column], SHORTEST * window.steps)
        if column == "idle" and name in CAUSES and not window.shapes:  # a busy host adds its own late launches
            assert getattr(window, CAUSES[name]) >= 0.9 * reported


OF_WINDOWS = {
    ("gpu_busy_fraction", "busy"): SCENES,
    ("h2d_fraction", "h2d"): ("copies", "plain"),
    ("sync_fraction", "idle"): ("sync", "copies"),
    ("exposed_comm_fraction", "communication_exposed"): ("overlap", "straggler", "ranks"),
}
OF_STEPS = {
    ("launch_bound_index", "idle"): ("plain",),
    ("host_stall_fraction", "idle"): ("slow host",),
    ("data_wait_fraction", "idle_data"): ("visible wait", "hidden wait", "plain"),
}


def a_step(run, truth):
    """Return the truth of the windows' mean step."""
    windows = [window for window in run.tables.windows if not window.shapes]
    sums = Counter()
    for window in windows:
        begin = run.run.started_at + window.start
        sums.update(truth.shares(begin, begin + window.duration))
    steps = sum(window.steps for window in windows)
    return {name: seconds / steps for name, seconds in sums.items()}


def rows(table):
    return pytest.mark.parametrize(
        ("metric", "share", "name"), [(*names, scene) for names, scenes in table.items() for scene in scenes]
    )


@rows(OF_WINDOWS)
def test_window_shares_are_relative_to_unprofiled_steps(scene, metric, share, name):
    run, truth = scene(name)
    known = a_step(run, truth)[share] / truth.steady["duration"]
    assert run.result["metrics"][metric]["value"] == pytest.approx(min(1, known), abs=0.01)


@rows(OF_STEPS)
def test_step_shares_match_unprofiled_steps(scene, metric, share, name):
    run, truth = scene(name)
    known = truth.steady[share] / truth.steady["duration"]
    assert run.result["metrics"][metric]["value"] == pytest.approx(known, abs=NEAR)


def test_pageable_copies_are_distinguished_from_pinned_ones(scene):
    run, truth = scene("copies")
    step = a_step(run, truth)
    known = step["h2d_pageable"] / step["h2d"]
    assert 0.4 < known < 0.6
    assert run.result["metrics"]["h2d_pageable_share"]["value"] == pytest.approx(known, rel=NEAR)
    assert {sync.cause for sync in run.tables.syncs} == {"copy_in"}


def test_communication_behind_the_backward_pass_is_hidden(scene):
    run, _ = scene("overlap")
    metrics = run.result["metrics"]
    assert metrics["comm_total"]["value"] == pytest.approx(0.060, rel=NEAR)
    assert metrics["exposed_comm_seconds"]["value"] == pytest.approx(0.020, rel=NEAR)


@pytest.mark.parametrize("name", SCENES)
def test_nvml_utilization_is_the_fraction_of_time_with_kernels(scene, name):
    run, truth = scene(name)
    begin, end = truth.span
    samples = [
        sample.utilization
        for sample in run.tables.gpu_samples
        if sample.gpu == truth.device and begin <= run.run.started_at + sample.time <= end
    ]
    assert sum(samples) / len(samples) == pytest.approx(truth.shares(begin, end)["busy"] / (end - begin), abs=0.08)


@pytest.mark.parametrize("name", SCENES)
def test_peak_memory_matches_torch(scene, name):
    run, _ = scene(name)
    _, allocated, reserved = run.out.split()[-3:]
    metrics = run.result["metrics"]
    assert metrics["mem_peak_allocated"]["value"] == int(allocated)
    assert metrics["mem_peak_reserved"]["value"] == int(reserved)


@pytest.mark.parametrize("name", [name for name in SCENES if "second GPU" not in name])
def test_memory_headroom_is_the_unused_device_memory(scene, name):
    run, _ = scene(name)
    context = 500 << 20
    total = int(SCENES[name].devices.partition(",")[0].partition(":")[2]) << 30
    metrics = run.result["metrics"]
    assert metrics["mem_nontorch"]["value"] == context
    left = 1 - (metrics["mem_peak_reserved"]["value"] + context) / total
    assert metrics["mem_headroom"]["value"] == pytest.approx(left, abs=0.001)


def test_straggler_skew_is_measured_in_the_other_ranks_wait(scene):
    run, truth = scene("straggler")
    (communication,) = {op.name for op in truth.ops if op.kind == "collective" and "AllReduce" in op.name}
    assert communication.startswith("ncclDevKernel")
    assert truth.typical("backward") == pytest.approx(0.070, rel=NEAR)
    assert run.result["metrics"]["straggler_skew"]["value"] == pytest.approx(0.030 / 0.070, rel=NEAR)


def test_skew_of_a_uniformly_slow_rank_matches_its_kernels(scene):
    """The slow rank's backward pass is the shortest: the other rank waits in its own."""
    own = []
    for rank, backward in ((0, 0.040), (1, 0.048)):
        run, truth = scene("slow rank", rank)
        own.append(truth.typical("duration") - truth.typical("backward") + backward)
    assert own[1] / own[0] == pytest.approx(1.2, rel=NEAR)
    assert run.result["metrics"]["straggler_skew"]["value"] == pytest.approx(own[1] / own[0] - 1, rel=NEAR)
