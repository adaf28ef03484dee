"""Snapshots of profiles, computed by hand."""

import math
from dataclasses import replace

import pytest
from profiles import RUN, metrics, rank, steps

from advisor.report.render.watch_text import draw
from advisor.watch.snapshot import SPAN, newest, snapshot
from profiler.schema import TAG_EVALUATION, TAG_FIRST, Gpu, GpuSample, HostSample, Stack

RUNNING = replace(RUN, outcome="running", duration=None)


def seen(*ranks, **tables):
    return snapshot(metrics(*ranks, **{"runs": (RUNNING,), **tables}).profile, "run")


def host(*times, **values):
    return tuple(HostSample(time=time, **values) for time in times)


def test_rate_and_phases_are_those_of_the_last_half_minute():
    slow, fast = steps(*[1.0] * 20, forward=1.0), steps(*[0.5] * 60, start=20.0, forward=0.2, data_wait=0.3)

    measured = seen(rank(steps=slow + fast)).steps

    assert measured.count == 80
    assert measured.rate == pytest.approx(2.0)
    assert measured.mean == pytest.approx(0.5)
    assert measured.phases["data_wait"] == pytest.approx(0.3)
    assert measured.phases["h2d"] is None
    assert measured.silent == 0.0


def test_the_first_step_has_no_start_and_does_not_slow_the_rate():
    first, *rest = steps(10.0, *[0.1] * 50)

    measured = seen(rank(steps=(replace(first, tags=TAG_FIRST), *rest))).steps

    assert measured.rate == pytest.approx(10.0)
    assert measured.mean == pytest.approx(0.1)


def test_work_between_steps_lowers_rate_but_not_step_time():
    plain = steps(*[0.1] * 50)
    evaluated = replace(plain[-1], tags=TAG_EVALUATION, evaluation=5.0)

    measured = seen(rank(steps=(*plain[:-1], evaluated))).steps

    assert measured.rate == pytest.approx(5.0)
    assert measured.mean == pytest.approx(0.1)
    assert measured.between == pytest.approx(0.1)


def test_a_loop_that_has_stopped_has_no_rate():
    measured = seen(rank(steps=steps(*[0.1] * 50)), host_samples=host(5.0, 100.0, cpu=1.0)).steps

    assert (measured.rate, measured.mean) == (None, None)
    assert measured.silent == pytest.approx(95.0)


def test_curves_have_one_value_per_second_and_start_blank():
    measured = seen(rank(steps=steps(*[0.25] * 40))).steps.rates

    assert len(measured) == SPAN
    assert measured[: SPAN - 10] == (None,) * (SPAN - 10)
    assert measured[SPAN - 10 :] == pytest.approx((4.0,) * 10)


def test_merged_rows_are_weighted_by_count():
    rows = [replace(each, start=10 * each.start) for each in steps(0.5, 0.5, 0.5, count=10)]

    measured = seen(rank(steps=tuple(rows))).steps

    assert (measured.count, measured.rate) == (30, pytest.approx(2.0))


def test_gauges_are_one_second_means_or_none_if_unmeasured():
    samples = (*host(97.2, 97.8, cpu=2.0), *host(100.0, cpu=4.0))

    measured = seen(rank(), host_samples=samples)

    assert measured.cpu.now == 4.0
    assert measured.cpu.of == 8.0
    assert measured.cpu.curve[-3:] == (2.0, None, 4.0)
    assert (measured.memory.now, set(measured.memory.curve)) == (None, {None})


def test_each_gpu_has_its_own_samples():
    gpus = tuple(Gpu(index=i, uuid=str(i), name="H100", memory_total=100) for i in range(2))
    samples = tuple(GpuSample(time=9.5, gpu=i, utilization=i / 2, memory_used=10 + i) for i in range(2))

    measured = seen(rank(), gpus=gpus, gpu_samples=samples, host_samples=host(10.0)).gpus

    assert [each.utilization.now for each in measured] == [0.0, 0.5]
    assert [(each.memory.now, each.memory.of) for each in measured] == [(10, 100), (11, 100)]


def test_no_step_statistics_before_first_step():
    measured = seen(rank(), host_samples=host(1.0, cpu=1.0))

    assert measured.steps is None
    assert not measured.is_over
    assert measured.result()["steps"] is None


@pytest.mark.parametrize(
    "odd",
    [
        {"start": math.inf},
        {"duration": math.inf},
        {"duration": -1.0},
        {"duration": 0.0},
        {"count": 0},
        {"count": 10**18},
        {"start": 1e300},
        {"start": -1e300},
        {"evaluation": math.inf},
    ],
)
def test_store_with_impossible_values_is_still_drawn(odd):
    good = steps(*[0.1] * 20)
    made = (*good[:10], replace(good[10], **odd), *good[11:])
    samples = (*host(1.0, cpu=1.0), *host(math.inf, cpu=math.inf))

    for table in (made, tuple(replace(step, **odd) for step in good)):
        shown = seen(rank(steps=table), host_samples=samples)
        assert draw(shown, 80, 24).plain.startswith("running ")


def stack(number, samples, *frames, phase="other"):
    return Stack(
        pid=1, id=number, role="rank", phase=phase, steady=True, frames=frames, total=samples / 10, samples=samples
    )


MAIN = ("/home/me/train.py", 9, "main", "")
SLOW = ("/home/me/train.py", 41, "normalize", "")
FORWARD = (MAIN, ("torch/nn/modules/module.py", 1, "Module._call_impl", "torch"))
BACKWARD = (MAIN, ("torch/_tensor.py", 1, "Tensor.backward", "torch"))
STACKS = (stack(0, 30, MAIN, SLOW), stack(1, 5, *FORWARD, phase="forward"), stack(2, 5, *BACKWARD, phase="backward"))


def test_the_hottest_line_is_that_of_the_newest_stacks():
    profile = metrics(rank(steps=steps(*[0.1] * 50), stacks=STACKS), runs=(RUNNING,)).profile
    before = (stack(0, 30, MAIN, SLOW), stack(1, 1, *FORWARD, phase="forward"))

    so_far = snapshot(profile, "run").lines
    now = snapshot(profile, "run", stacks=newest(STACKS, before))

    assert (so_far[0].line, so_far[0].share) == (41, pytest.approx(0.75))
    assert snapshot(profile, "run").result()["lines"][0] == {
        "name": "normalize()",
        "file": "/home/me/train.py",
        "line": 41,
        "phase": "other",
        "share": so_far[0].share,
        "samples": 30,
    }
    assert now.lines == ()  # too few since then
    assert [row.samples for row in newest(STACKS, before)] == [4, 5]
    assert newest(STACKS, STACKS) == ()


def test_the_hottest_line_is_drawn():
    drawn = draw(seen(rank(steps=steps(*[0.1] * 50), stacks=STACKS)), 100, 40).plain

    assert "75% normalize() in train.py:41" in drawn
