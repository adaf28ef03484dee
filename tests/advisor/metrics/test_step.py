from dataclasses import replace

import pytest
from profiles import metrics, rank, steps

from advisor.metrics.base import Missing
from advisor.metrics.step import (
    between_seconds,
    checkpoint_save_seconds,
    checkpoint_saves,
    data_wait_fraction,
    data_wait_host_fraction,
    epoch_gap_share,
    epoch_settling_share,
    epoch_start_share,
    evaluation_share,
    exposed_comm_fraction,
    h2d_fraction,
    micro_steps_per_step,
    other_fraction,
    phase_seconds,
    recompile_share,
    recompiles,
    steady_step_count,
    steady_steps,
    steady_window,
    step_time_ci,
    step_time_cv,
    step_time_mean,
    step_time_p50,
    step_time_p90,
    step_time_p99,
    step_time_uncertainty,
    typical_step_uncertainty,
)
from profiler.schema import (
    TAG_CHECKPOINT,
    TAG_COMPILE,
    TAG_EPOCH_START,
    TAG_EVALUATION,
    TAG_FIRST,
    TAG_WINDOW,
    Window,
)
from profiler.sketch import Quantiles


def of(*durations, **columns):
    return metrics(rank(steps=steps(*durations, **columns)))


def test_the_first_ten_steps_are_warm_up():
    m = of(*[0.5] * 8, *[0.1] * 52)

    assert m[steady_step_count] == 50
    assert m[step_time_mean] == pytest.approx(0.1)


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


def test_epochs_of_one_batch_are_all_there_is():
    m = of(*[0.1] * 30, tags=TAG_EPOCH_START)

    assert m[steady_step_count] == 20


def test_the_first_step_of_a_process_has_no_start_to_be_measured_from():
    first, second = steps(5.0, 0.1)

    assert metrics(rank(steps=(replace(first, tags=TAG_FIRST), second)))[step_time_mean] == pytest.approx(0.1)
    with pytest.raises(Missing, match="first step"):
        metrics(rank(steps=(replace(first, tags=TAG_FIRST),)))[step_time_mean]


def test_without_steps_the_remedy_says_how_to_get_some():
    with pytest.raises(Missing) as caught:
        metrics(rank())[step_time_mean]

    assert "step()" in caught.value.remedy


def test_no_process_is_missing_too():
    with pytest.raises(Missing):
        metrics()[step_time_mean]


def test_the_lowest_rank_speaks():
    m = metrics(rank(1, steps=steps(*[0.9] * 40)), rank(0, steps=steps(*[0.1] * 40)))

    assert m[step_time_mean] == pytest.approx(0.1)


def test_merged_rows_count_as_often_as_the_steps_they_stand_for():
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
    seen.add(0.1, 900)
    seen.add(0.5, 100)
    merged = steps(*[0.14] * 100, count=10)
    m = metrics(rank(steps=merged, sketches=(seen.to_sketch(1, "duration"),)))

    assert m[step_time_p50] == pytest.approx(0.1, rel=0.01)
    assert m[step_time_p99] == pytest.approx(0.5, rel=0.01)


def test_spread():
    m = of(*[0.1] * 10, *[0.09, 0.11] * 50)

    assert m[step_time_cv] == pytest.approx(0.1, rel=0.06)
    with pytest.raises(Missing):
        of(0.1)[step_time_cv]


def test_the_interval_holds_the_mean_and_narrows_with_more_steps():
    pattern = [0.08, 0.12, 0.09, 0.11, 0.1, 0.13, 0.07]
    few, many = of(*pattern * 6), of(*pattern * 60)

    for m in (few, many):
        low, high = m[step_time_ci]
        assert low <= m[step_time_mean] <= high
    assert 0 < many[step_time_uncertainty] < few[step_time_uncertainty] < 0.2


def test_the_interval_is_the_same_every_time():
    durations = [0.1 + 0.001 * (n * 7919 % 13) for n in range(60)]

    assert of(*durations)[step_time_ci] == of(*durations)[step_time_ci]


def test_steps_that_resemble_their_neighbours_are_worth_fewer():
    apart = of(*[0.08, 0.12] * 60)
    in_runs = of(*([0.08] * 10 + [0.12] * 10) * 6)

    assert in_runs[step_time_uncertainty] > 2 * apart[step_time_uncertainty]


def test_a_few_stalls_make_the_mean_uncertain_but_not_the_typical_step():
    m = of(*[0.09, 0.1, 0.11, 0.1] * 12, 1.0, *[0.1, 0.11, 0.09, 0.1] * 12, 1.5, *[0.1] * 10)

    assert m[step_time_uncertainty] > 0.1
    assert 0 < m[typical_step_uncertainty] < 0.02


def test_without_stalls_the_two_agree():
    """Times spread evenly over +-50 %: the trimmed mean is the mean, and 1.1 times as uncertain or so."""
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


def test_what_was_not_measured_is_missing_and_not_zero():
    m = of(*[0.1] * 40, other=0.1)

    assert m[other_fraction] == pytest.approx(1.0)
    for absent in (h2d_fraction, data_wait_fraction, exposed_comm_fraction):
        with pytest.raises(Missing) as caught:
            m[absent]
        assert caught.value.remedy


def test_windows_tell_of_copies_that_steps_do_not_tell_apart():
    window = Window(pid=1, start=1.0, steps=3, duration=0.4, cost=0.0, device="cuda", h2d=0.1)
    m = metrics(rank(steps=steps(*[0.1] * 40, other=0.1), windows=(window,)))

    assert m[h2d_fraction] == pytest.approx(0.25)
    assert "h2d" not in m[phase_seconds]
    with pytest.raises(Missing):
        m[exposed_comm_fraction]


def test_work_between_steps_is_a_share_of_the_run():
    plain = steps(*[0.1] * 9, evaluation=0.0, epoch_start=0.0)
    evaluated = steps(0.1, start=0.9, evaluation=1.0, epoch_start=0.0, tags=TAG_EVALUATION)
    m = metrics(rank(steps=(*plain, *evaluated)))

    assert m[evaluation_share] == pytest.approx(0.5)
    assert m[epoch_start_share] == 0.0
    assert m[between_seconds] == pytest.approx({"evaluation": 0.1, "epoch_start": 0.0})
    assert m[steady_window] == pytest.approx((0.5, 2.0))  # the evaluation lies in the last of them


def epochs(first, *, tags=TAG_EPOCH_START):
    """A run of two epochs, 1/8 s a step, half of that its usual remainder; the second begins with this step."""
    usual = {"forward": 0.0625, "other": 0.0625, "epoch_start": 0.0}
    begins = steps(sum(first.values()), start=5.0, tags=tags, epoch_start=1.0, **first)
    return metrics(rank(steps=(*steps(*[0.125] * 40, **usual), *begins, *steps(*[0.125] * 39, start=10.0, **usual))))


def test_what_the_program_does_between_epochs_is_seen():
    m = epochs({"forward": 0.0625, "other": 3.0625})

    assert m[step_time_mean] == pytest.approx(0.125)
    assert m[epoch_gap_share] == pytest.approx(3.0 / 14.0)
    assert m[epoch_settling_share] == 0.0
    assert m[between_seconds] == pytest.approx({"epoch_start": 1.0 / 80, "epoch_gap": 3.0 / 80})


def test_a_step_that_is_slower_after_an_epoch_start_settles():
    m = epochs({"forward": 1.0625, "other": 0.03125})

    assert m[epoch_gap_share] == 0.0
    assert m[epoch_settling_share] == pytest.approx(1.0 / 11.96875)
    assert m[between_seconds] == pytest.approx({"epoch_start": 1.0 / 80, "epoch_settling": 1.0 / 80})


@pytest.mark.parametrize("odd", [TAG_FIRST, TAG_WINDOW, TAG_COMPILE])
def test_what_lies_before_an_odd_step_is_not_known(odd):
    with pytest.raises(Missing, match="later epoch"):
        epochs({"forward": 1.0625, "other": 3.0625}, tags=TAG_EPOCH_START | odd)[epoch_gap_share]


def test_epochs_of_one_step_have_no_other_to_compare_with():
    m = of(*[0.1] * 30, tags=TAG_EPOCH_START, other=0.04)

    for each in (epoch_gap_share, epoch_settling_share):
        with pytest.raises(Missing, match="Every step begins"):
            m[each]


def test_recording_a_window_is_no_part_of_the_run():
    plain = steps(*[0.1] * 39, epoch_start=0.0)
    windowed = steps(7.0, start=3.9, tags=TAG_WINDOW | TAG_EPOCH_START, epoch_start=1.0)

    assert metrics(rank(steps=(*plain, *windowed)))[epoch_start_share] == pytest.approx(1.0 / 5.0)


def test_accumulated_gradients_show_as_micro_steps():
    assert of(*[0.1] * 40, micro_steps=4.0)[micro_steps_per_step] == 4.0


def compiling(*tagged):
    """40 steps of 0.1 s; those at these indices took 1.1 s, for they compiled."""
    plain = steps(*[0.1] * 40)
    tags = dict(tagged)
    return tuple(replace(s, duration=1.1, tags=tags[s.index]) if s.index in tags else s for s in plain)


def test_steps_that_compiled_after_the_first():
    """What they took counts after warm-up only: at the start it is paid once."""
    m = metrics(
        rank(steps=compiling((0, TAG_COMPILE | TAG_FIRST), (5, TAG_COMPILE), (20, TAG_COMPILE), (30, TAG_COMPILE)))
    )

    assert m[recompiles] == 3
    assert m[recompile_share] == pytest.approx(2 * 1.0 / (36 * 0.1 + 4 * 1.1))


def test_what_differs_at_every_step_has_used_up_all_variants_before_warm_up_ends():
    m = metrics(rank(steps=compiling(*[(number, TAG_COMPILE) for number in range(8)])))

    assert m[recompiles] == 7
    assert m[recompile_share] == 0.0


def test_what_our_own_window_cost_is_no_compiling():
    m = metrics(rank(steps=compiling((20, TAG_COMPILE | TAG_WINDOW))))

    assert m[recompiles] == 1
    assert m[recompile_share] == 0.0


def test_merged_steps_of_which_one_at_least_compiled():
    rows = compiling((20, TAG_COMPILE), (30, TAG_COMPILE | TAG_EVALUATION))
    merged = tuple(replace(row, count=4) if row.tags else row for row in rows)

    assert metrics(rank(steps=merged))[recompiles] == 5


def test_nothing_compiled():
    assert metrics(rank(steps=steps(*[0.1] * 40)))[recompiles] == 0
    with pytest.raises(Missing):
        metrics(rank())[recompiles]


def test_saves_are_steps_however_many_files_each_writes():
    plain = steps(*[0.1] * 20)
    tagged = [replace(s, tags=TAG_CHECKPOINT, checkpoint_save=0.5) if s.index in (4, 9) else s for s in plain]

    assert metrics(rank(steps=tuple(tagged)))[checkpoint_saves] == 2
    assert metrics(rank(steps=tuple(tagged)))[checkpoint_save_seconds] == pytest.approx(0.5)
    with pytest.raises(Missing, match="No checkpoint"):
        metrics(rank(steps=plain))[checkpoint_save_seconds]
    assert metrics(rank(steps=(replace(plain[0], tags=TAG_CHECKPOINT, count=3),)))[checkpoint_saves] == 3
    assert metrics(rank(steps=plain))[checkpoint_saves] == 0
