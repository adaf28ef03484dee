"""The curves of a report: thinning them loses no spike."""

from hypothesis import given
from hypothesis import strategies as st

from advisor.report.timeline import MOST_POINTS, Curve, charts, thinned
from advisor.runs.profile import Profile, Rank
from profiler.schema import TAG_EVALUATION, Gpu, GpuSample, Process, Step


def test_a_short_curve_is_left_alone():
    curve = Curve(label="a", times=(0.0, 1.0), values=(1.0, None))

    assert thinned(curve, 10) is curve


@given(st.lists(st.none() | st.floats(-1e6, 1e6), min_size=1, max_size=400), st.integers(2, 50))
def test_thinning_keeps_the_extremes_the_order_and_the_limit(values, limit):
    curve = thinned(Curve(label="a", times=tuple(map(float, range(len(values)))), values=tuple(values)), limit)

    known = [v for v in values if v is not None]
    kept = [v for v in curve.values if v is not None]
    assert len(curve.times) <= max(limit, 2)
    assert list(curve.times) == sorted(set(curve.times))
    assert (min(kept), max(kept)) == (min(known), max(known)) if known else not kept


def test_distinguishes_steady_from_other_steps():
    steps = [Step(pid=1, index=i, start=float(i), duration=1.0, tags=TAG_EVALUATION if i == 3 else 0) for i in range(5)]
    profile = Profile(runs=(), ranks=(Rank(process=Process(pid=1, started=0.0), steps=tuple(steps)),))

    (chart,) = charts(profile)

    assert [(curve.label, curve.kind, len(curve.times)) for curve in chart.curves] == [
        ("step", "line", 4),
        ("with evaluation", "points", 1),
    ]


def test_what_was_not_measured_has_no_chart():
    assert charts(Profile(runs=())) == ()


def test_a_long_run_on_many_gpus_stays_small():
    gpus = tuple(Gpu(index=i, uuid=str(i), name="g", memory_total=1) for i in range(16))
    samples = tuple(
        GpuSample(time=t / 10, gpu=i, utilization=0.5, memory_used=1) for t in range(5_000) for i in range(16)
    )

    shown = charts(Profile(runs=(), gpus=gpus, gpu_samples=samples))

    assert max(len(curve.times) for chart in shown for curve in chart.curves) <= MOST_POINTS
    assert sum(len(curve.times) for chart in shown for curve in chart.curves) <= 24_000
