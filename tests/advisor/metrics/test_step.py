from dataclasses import replace

import pytest
from profiles import metrics, rank, steps

from advisor.metrics.base import Missing
from advisor.metrics.step import (
    data_wait_fraction,
    data_wait_host_fraction,
    exposed_comm_fraction,
    forward_fraction,
    h2d_fraction,
    micro_steps_per_step,
    other_fraction,
    phase_seconds,
    steady_step_count,
    steady_steps,
    step_time_ci,
    step_time_cv,
    step_time_mean,
    step_time_p50,
    step_time_p90,
    step_time_p99,
    step_time_uncertainty,
    typical_step_uncertainty,
)
from profiler.quantile_sketch import Quantiles
from profiler.schema import (
    TAG_CHECKPOINT,
    TAG_EPOCH_START,
    TAG_EVALUATION,
    TAG_FIRST,
    TAG_UNREACHED,
    TAG_WINDOW,
    ModelFact,
    Window,
)


def of(*durations, **columns):
    return metrics(rank(steps=steps(*durations, **columns)))


def test_the_first_ten_steps_are_warm_up():
    m = of(*[0.5] * 8, *[0.1] * 52)

    assert m[steady_step_count] == 50
    assert m[step_time_mean] == pytest.approx(0.1)


def test_a_step_that_no_gpu_has_reached_has_no_time():
    short = steps(*[0.001] * 20, tags=TAG_UNREACHED)
    reached = [replace(step, tags=0, duration=0.1) for step in short[:2]]
    assert metrics(rank(steps=(*reached, *short[2:])))[step_time_mean] == 0.1
    with pytest.raises(Missing, match="GPU"):
        metrics(rank(steps=(replace(short[0], tags=TAG_FIRST), *short[1:])))[step_time_mean]


def test_warm_up_lasts_while_the_median_moves():
    m = of(*[0.1 * 0.95**n for n in range(30)], *[0.02] * 70)

    assert m[steady_steps][0].index > 10
    assert m[step_time_p50] == 0.02


def test_warm_up_never_takes_more_than_half():
    assert of(*[1.0 / n for n in range(1, 41)])[steady_step_count] == 20
    assert of(1.0, 0.1, 0.1)[steady_step_count] == 2
    assert of(1.0)[steady_step_count] == 1


def test_tagged_steps_are_not_steady():
    plain = steps(*[0.1] * 40)
    tags = {20: TAG_EVALUATION, 21: TAG_WINDOW, 22: TAG_CHECKPOINT}
    tagged = [replace(s, duration=9.0, tags=tags[s.index]) if s.index in tags else s for s in plain]

    assert metrics(rank(steps=tuple(tagged)))[step_time_mean] == pytest.approx(0.1)


def test_one_batch_epochs_still_have_steady_steps():
    m = of(*[0.1] * 30, tags=TAG_EPOCH_START)

    assert m[steady_step_count] == 20


def test_first_step_of_process_has_no_duration():
    first, second = steps(5.0, 0.1)

    assert metrics(rank(steps=(replace(first, tags=TAG_FIRST), second)))[step_time_mean] == pytest.approx(0.1)
    with pytest.raises(Missing, match="first step"):
        metrics(rank(steps=(replace(first, tags=TAG_FIRST),)))[step_time_mean]


def test_remedy_without_steps_mentions_step_call():
    with pytest.raises(Missing) as caught:
        metrics(rank())[step_time_mean]

    assert "step()" in caught.value.remedy


def test_step_time_is_missing_without_process():
    with pytest.raises(Missing):
        metrics()[step_time_mean]


def test_metrics_come_from_lowest_rank():
    m = metrics(rank(1, steps=steps(*[0.9] * 40)), rank(0, steps=steps(*[0.1] * 40)))

    assert m[step_time_mean] == pytest.approx(0.1)


def test_merged_rows_are_weighted_by_count():
    alone, merged = steps(*[0.1] * 20), steps(0.3, start=2.0, count=10)
    m = metrics(rank(steps=(*alone, *merged)))

    assert m[steady_step_count] == 20
    assert m[step_time_mean] == pytest.approx(0.2)


def test_quantiles_of_single_steps():
    m = of(*[0.1] * 10, *[0.01 * n for n in range(1, 101)])

    assert m[steady_step_count] >= 55
    durations = sorted(step.duration for step in m[steady_steps])
    assert m[step_time_p50] == durations[-(-len(durations) // 2) - 1]
    assert m[step_time_p50] < m[step_time_p90] < m[step_time_p99] <= 1.0


def test_quantiles_of_merged_steps_come_from_the_sketch():
    seen = Quantiles()
    seen.extend([0.1] * 900 + [0.5] * 100)
    merged = steps(*[0.14] * 100, count=10)
    m = metrics(rank(steps=merged, sketches=(seen.to_sketch(1, "duration"),)))

    assert m[step_time_p50] == pytest.approx(0.1, rel=0.01)
    assert m[step_time_p99] == pytest.approx(0.5, rel=0.01)


def test_spread():
    m = of(*[0.1] * 10, *[0.09, 0.11] * 50)

    assert m[step_time_cv] == pytest.approx(0.1, rel=0.06)
    with pytest.raises(Missing):
        of(0.1)[step_time_cv]


def test_interval_contains_mean_and_narrows_with_more_steps():
    pattern = [0.08, 0.12, 0.09, 0.11, 0.1, 0.13, 0.07]
    few, many = of(*pattern * 6), of(*pattern * 60)

    for m in (few, many):
        low, high = m[step_time_ci]
        assert low <= m[step_time_mean] <= high
    assert 0 < many[step_time_uncertainty] < few[step_time_uncertainty] < 0.2


def test_the_interval_is_the_same_every_time():
    durations = [0.1 + 0.001 * (n * 7919 % 13) for n in range(60)]

    assert of(*durations)[step_time_ci] == of(*durations)[step_time_ci]


def test_autocorrelated_steps_are_more_uncertain():
    apart = of(*[0.08, 0.12] * 60)
    in_runs = of(*([0.08] * 10 + [0.12] * 10) * 6)

    assert in_runs[step_time_uncertainty] > 2 * apart[step_time_uncertainty]


def test_a_few_stalls_make_the_mean_uncertain_but_not_the_typical_step():
    m = of(*[0.09, 0.1, 0.11, 0.1] * 12, 1.0, *[0.1, 0.11, 0.09, 0.1] * 12, 1.5, *[0.1] * 10)

    assert m[step_time_uncertainty] > 0.1
    assert 0 < m[typical_step_uncertainty] < 0.02


def test_mean_and_typical_uncertainty_agree_without_stalls():
    """With times spread evenly over +-50 %, the trimmed mean equals the mean and is about 1.1 times as uncertain."""
    m = of(*[0.05 + 0.001 * (n * 37 % 101) for n in range(400)])

    assert m[typical_step_uncertainty] == pytest.approx(m[step_time_uncertainty], rel=0.3)


def test_equal_steps_are_certain():
    assert of(*[0.1] * 60)[step_time_uncertainty] == pytest.approx(0.0)


def test_four_steps_have_no_interval():
    with pytest.raises(Missing):
        of(*[0.1] * 8)[step_time_ci]


def test_a_fraction_is_the_phase_over_the_step():
    fast = steps(*[0.1] * 20, data_wait=0.06, other=0.04, fetch_host=0.07)
    slow = steps(*[0.3] * 20, start=2.0, data_wait=0.06, other=0.24, fetch_host=0.07)
    m = metrics(rank(steps=(*fast, *slow)))

    assert m[steady_step_count] == 30
    assert m[data_wait_fraction] == pytest.approx(30 * 0.06 / (10 * 0.1 + 20 * 0.3))
    assert m[data_wait_host_fraction] == pytest.approx(30 * 0.07 / 7.0)


def test_phases_sum_to_the_mean_step():
    m = of(*[0.1] * 40, data_wait=0.06, forward=0.01, backward=0.02, other=0.01)

    assert m[phase_seconds] == pytest.approx({"data_wait": 0.06, "forward": 0.01, "backward": 0.02, "other": 0.01})
    assert sum(m[phase_seconds].values()) == pytest.approx(m[step_time_mean])


def test_unmeasured_phase_is_missing_rather_than_zero():
    m = of(*[0.1] * 40, other=0.1)

    assert m[other_fraction] == pytest.approx(1.0)
    for absent in (h2d_fraction, data_wait_fraction, exposed_comm_fraction):
        with pytest.raises(Missing) as caught:
            m[absent]
        assert caught.value.remedy


def test_h2d_fraction_comes_from_windows_if_steps_lack_it():
    window = Window(pid=1, start=1.0, steps=3, duration=0.4, cost=0.0, device="cuda", h2d=0.1)
    m = metrics(rank(steps=steps(*[0.1] * 40, other=0.1), windows=(window,)))

    assert m[h2d_fraction] == pytest.approx(0.25)
    assert "h2d" not in m[phase_seconds]
    with pytest.raises(Missing):
        m[exposed_comm_fraction]


def test_accumulated_gradients_show_as_micro_steps():
    assert of(*[0.1] * 40, micro_steps=4.0)[micro_steps_per_step] == 4.0


@pytest.mark.parametrize("device", ["xpu:0", "mps", "hpu:1"])
def test_host_times_of_queued_work_are_not_phases(device):
    phases = {"data_wait": 0.02, "forward": 0.03, "backward": 0.05}
    m = metrics(rank(steps=steps(*[0.1] * 40, **phases), models=(ModelFact(id=1, devices={device: 1}),)))

    assert m[step_time_mean] == pytest.approx(0.1)
    assert m[data_wait_fraction] == pytest.approx(0.2)
    for metric in (phase_seconds, forward_fraction):
        with pytest.raises(Missing):
            m[metric]
