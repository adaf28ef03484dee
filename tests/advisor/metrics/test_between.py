from dataclasses import replace

import pytest
from profiles import metrics, rank, steps

from advisor.metrics.base import Missing
from advisor.metrics.between import (
    between_seconds,
    checkpoint_save_seconds,
    checkpoint_saves,
    epoch_gap_share,
    epoch_settling_share,
    epoch_start_share,
    evaluation_share,
    evaluations,
    recompile_share,
    recompiles,
)
from advisor.metrics.step import steady_window, step_time_mean
from profiler.schema import (
    TAG_CHECKPOINT,
    TAG_COMPILE,
    TAG_EPOCH_START,
    TAG_EVALUATION,
    TAG_FIRST,
    TAG_WINDOW,
)


def of(*durations, **columns):
    return metrics(rank(steps=steps(*durations, **columns)))


def test_work_between_steps_is_a_share_of_the_run():
    plain = steps(*[0.1] * 9, evaluation=0.0, epoch_start=0.0)
    evaluated = steps(0.1, start=0.9, evaluation=1.0, epoch_start=0.0, tags=TAG_EVALUATION)
    m = metrics(rank(steps=(*plain, *evaluated)))

    assert m[evaluation_share] == pytest.approx(0.5)
    assert m[epoch_start_share] == 0.0
    assert m[between_seconds] == pytest.approx({"evaluation": 0.1, "epoch_start": 0.0})
    assert m[steady_window] == pytest.approx((0.5, 2.0))  # the evaluation is in the last step


def epochs(first, *, tags=TAG_EPOCH_START):
    """Return metrics of two epochs with steps of 1/8 s, half of it the usual remainder; `first` begins the second."""
    usual = {"forward": 0.0625, "other": 0.0625, "epoch_start": 0.0}
    begins = steps(sum(first.values()), start=5.0, tags=tags, epoch_start=1.0, **first)
    return metrics(rank(steps=(*steps(*[0.125] * 40, **usual), *begins, *steps(*[0.125] * 39, start=10.0, **usual))))


def test_time_between_epochs_is_measured():
    m = epochs({"forward": 0.0625, "other": 3.0625})

    assert m[step_time_mean] == pytest.approx(0.125)
    assert m[epoch_gap_share] == pytest.approx(3.0 / 14.0)
    assert m[epoch_settling_share] == 0.0
    assert m[between_seconds] == pytest.approx({"epoch_start": 1.0 / 80, "epoch_gap": 3.0 / 80})


def test_slower_step_after_epoch_start_is_settling():
    m = epochs({"forward": 1.0625, "other": 0.03125})

    assert m[epoch_gap_share] == 0.0
    assert m[epoch_settling_share] == pytest.approx(1.0 / 11.96875)
    assert m[between_seconds] == pytest.approx({"epoch_start": 1.0 / 80, "epoch_settling": 1.0 / 80})


@pytest.mark.parametrize("odd", [TAG_FIRST, TAG_WINDOW, TAG_COMPILE])
def test_gap_before_atypical_step_is_unknown(odd):
    with pytest.raises(Missing, match="later epoch"):
        epochs({"forward": 1.0625, "other": 3.0625}, tags=TAG_EPOCH_START | odd)[epoch_gap_share]


def test_one_step_epochs_have_no_reference_step():
    m = of(*[0.1] * 30, tags=TAG_EPOCH_START, other=0.04)

    for each in (epoch_gap_share, epoch_settling_share):
        with pytest.raises(Missing, match="Every observed step begins"):
            m[each]


def test_run_time_excludes_window_recording():
    plain = steps(*[0.1] * 39, epoch_start=0.0)
    windowed = steps(7.0, start=3.9, tags=TAG_WINDOW | TAG_EPOCH_START, epoch_start=1.0)

    assert metrics(rank(steps=(*plain, *windowed)))[epoch_start_share] == pytest.approx(1.0 / 5.0)


def compiling(*tagged):
    """Return 40 steps of 0.1 s; those at the given indices compiled and took 1.1 s."""
    plain = steps(*[0.1] * 40)
    tags = dict(tagged)
    return tuple(replace(s, duration=1.1, tags=tags[s.index]) if s.index in tags else s for s in plain)


def test_steps_that_compiled_after_the_first():
    """Their time counts only after warm-up: at the start it is paid once."""
    m = metrics(
        rank(steps=compiling((0, TAG_COMPILE | TAG_FIRST), (5, TAG_COMPILE), (20, TAG_COMPILE), (30, TAG_COMPILE)))
    )

    assert m[recompiles] == 3
    assert m[recompile_share] == pytest.approx(2 * 1.0 / (36 * 0.1 + 4 * 1.1))


def test_recompiles_during_warm_up_have_no_share():
    m = metrics(rank(steps=compiling(*[(number, TAG_COMPILE) for number in range(8)])))

    assert m[recompiles] == 7
    assert m[recompile_share] == 0.0


def test_window_cost_is_not_counted_as_recompiling():
    m = metrics(rank(steps=compiling((20, TAG_COMPILE | TAG_WINDOW))))

    assert m[recompiles] == 1
    assert m[recompile_share] == 0.0


def test_recompiles_of_merged_steps():
    rows = compiling((20, TAG_COMPILE), (30, TAG_COMPILE | TAG_EVALUATION))
    merged = tuple(replace(row, count=4) if row.tags else row for row in rows)

    assert metrics(rank(steps=merged))[recompiles] == 5


def test_nothing_compiled():
    assert metrics(rank(steps=steps(*[0.1] * 40)))[recompiles] == 0
    with pytest.raises(Missing):
        metrics(rank())[recompiles]


def test_evaluations_are_counted():
    tagged = [replace(s, tags=TAG_EVALUATION) if s.index in (4, 9) else s for s in steps(*[0.1] * 20)]
    assert metrics(rank(steps=tuple(tagged)))[evaluations] == 2
    with pytest.raises(Missing):
        metrics(rank())[evaluations]


def test_checkpoint_saves_are_counted_by_step():
    plain = steps(*[0.1] * 20)
    tagged = [replace(s, tags=TAG_CHECKPOINT, checkpoint_save=0.5) if s.index in (4, 9) else s for s in plain]

    assert metrics(rank(steps=tuple(tagged)))[checkpoint_saves] == 2
    assert metrics(rank(steps=tuple(tagged)))[checkpoint_save_seconds] == pytest.approx(0.5)
    with pytest.raises(Missing, match="No checkpoint"):
        metrics(rank(steps=plain))[checkpoint_save_seconds]
    assert metrics(rank(steps=(replace(plain[0], tags=TAG_CHECKPOINT, count=3),)))[checkpoint_saves] == 3
    assert metrics(rank(steps=plain))[checkpoint_saves] == 0
