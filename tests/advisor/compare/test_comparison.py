"""Comparison of the profiles of two runs."""

import json
import os
from dataclasses import replace
from random import Random

import pytest
from profiles import RUN, metrics, rank, steps

from advisor.compare.change import ChangeVerdict
from advisor.compare.comparison import compare
from profiler.schema import (
    TAG_CHECKPOINT,
    FlagsFact,
    HostSample,
    LoaderFact,
    MemorySample,
)

SHAPE = (0.97, 1.0, 1.03, 1.0, 0.98, 1.02, 1.0)
"""Relative times of steps that scatter by a few percent."""


def times(mean, number=140):
    return [mean * SHAPE[i % len(SHAPE)] for i in range(number)]


def run(mean=0.1, number=140, run=RUN, host=(), **tables):
    """Return a run whose steps are half forward, half backward pass."""
    columns = tables.pop("columns", {"forward": mean / 2, "backward": mean / 2})
    made = tables.pop("made", None) or steps(*times(mean, number), **columns)
    return metrics(rank(steps=made, **tables), runs=(run,), host_samples=host)


def row(rows, name):
    return next(each for each in rows if each.name == name)


@pytest.mark.parametrize(
    ("mean", "expected"),
    [
        (0.1, ChangeVerdict.SAME),
        (0.102, ChangeVerdict.SAME),
        (0.108, ChangeVerdict.WORSE),
        (0.092, ChangeVerdict.BETTER),
    ],
)
def test_step_time_is_worse_beyond_relevant_difference(mean, expected):
    found = compare(run(), run(mean))

    assert found.verdict is expected
    assert found.mean.change.estimate == pytest.approx(mean / 0.1 - 1)
    assert found.mean.change.low < found.mean.change.estimate < found.mean.change.high


def test_changes_are_relative_to_own_row_and_above_minus_100_percent():
    slow = [0.5 if i % 10 == 5 else 0.1 * SHAPE[i % 7] for i in range(140)]

    found = compare(run(made=steps(*slow)), run(0.01))

    assert found.mean.before > 1.3 * found.typical.before
    for each in (found.mean, found.typical):
        assert each.change.estimate == pytest.approx(each.after / each.before - 1)
        assert -1 < each.change.low < each.change.estimate < each.change.high < 0


def test_relevant_difference_can_be_chosen():
    assert compare(run(), run(0.108), relevant=0.1).verdict is ChangeVerdict.SAME
    assert compare(run(), run(0.102), relevant=0.01).verdict is ChangeVerdict.WORSE


def test_each_phase_is_judged_separately():
    after = run(0.14, columns={"forward": 0.09, "backward": 0.05})

    found = compare(run(), after)

    assert row(found.phases, "forward").verdict is ChangeVerdict.WORSE
    assert row(found.phases, "forward").change.estimate == pytest.approx(0.4)
    assert row(found.phases, "backward").verdict is ChangeVerdict.SAME


def test_phase_missing_in_one_run_is_not_taken_as_zero():
    after = run(columns={"forward": 0.05, "backward": 0.04, "data_wait": 0.01})

    found = row(compare(run(), after).phases, "data_wait")

    assert (found.before, found.after, found.verdict) == (None, pytest.approx(0.01), ChangeVerdict.NOT_MEASURED)
    assert found.change is None


@pytest.mark.parametrize("sides", [(39, 140), (140, 39)])
def test_thirty_steady_steps_are_enough_and_fewer_are_not(sides):
    few = compare(run(number=sides[0]), run(0.2, number=sides[1]))
    enough = compare(run(number=max(40, sides[0])), run(0.2, number=max(40, sides[1])))

    assert (few.verdict, enough.verdict) == (ChangeVerdict.TOO_FEW, ChangeVerdict.WORSE)
    assert {each.verdict for each in few.phases} == {ChangeVerdict.TOO_FEW, ChangeVerdict.NOT_MEASURED}


def test_a_run_without_steps_is_not_judged():
    found = compare(run(), metrics(rank()))

    assert found.verdict is ChangeVerdict.NOT_MEASURED
    assert found.mean.after is None


def test_single_stall_makes_mean_unclear_but_not_typical_step():
    stalled = times(0.1)
    stalled[60] = 5.0
    found = compare(run(), run(made=steps(*stalled)))

    assert (found.mean.verdict, found.typical.verdict, found.verdict) == (
        ChangeVerdict.UNCLEAR,
        ChangeVerdict.SAME,
        ChangeVerdict.SAME,
    )


def test_stall_in_every_tenth_step_counts_as_worse():
    stalled = [each + 0.2 * (i % 10 == 5) for i, each in enumerate(times(0.1))]

    assert compare(run(), run(made=steps(*stalled))).verdict is ChangeVerdict.WORSE


def saving(seconds, number=140):
    """Return steps of which every tenth is followed by a save."""
    made = steps(*times(0.1, number), checkpoint_save=0.0)
    return tuple(
        replace(each, tags=TAG_CHECKPOINT, checkpoint_save=seconds) if i % 10 == 0 else each
        for i, each in enumerate(made)
    )


def test_time_between_steps_counts():
    found = compare(run(made=saving(0.05)), run(made=saving(0.5)))

    assert found.mean.verdict is ChangeVerdict.SAME
    assert row(found.between, "checkpoint_save").change.estimate == pytest.approx(0.45, rel=0.02)
    assert found.verdict is ChangeVerdict.WORSE


def test_twice_the_batch_in_twice_the_time_is_the_same_speed():
    def of(mean, batch):
        return run(mean, loaders=(LoaderFact(id=1, batch_size=batch),), columns={"batches": 1.0, "forward": mean})

    found = compare(of(0.1, 32), of(0.2, 64))

    assert found.scale == 0.5
    assert found.verdict is ChangeVerdict.SAME
    assert found.mean.after == pytest.approx(0.1)


def test_memory_is_judged_by_its_size():
    def of(size):
        return run(
            memory_samples=(
                MemorySample(time=1, pid=1, device=0, allocated=1, allocated_peak=size, reserved=1, reserved_peak=1),
            )
        )

    found = compare(of(1000), of(1200))

    assert row(found.memory, "mem_peak_allocated").verdict is ChangeVerdict.WORSE
    assert row(found.memory, "mem_peak_reserved").verdict is ChangeVerdict.SAME
    assert row(found.memory, "mem_params").verdict is ChangeVerdict.NOT_MEASURED
    assert found.verdict is ChangeVerdict.SAME


def busy(program, machine):
    return tuple(HostSample(time=t, cpu=program, cpu_workers=0.0, machine_cpu=machine) for t in (2.0, 5.0, 8.0))


ALONE, CROWDED, LEAVING = busy(4.0, 5.0), busy(4.0, 16.0), busy(4.0, 13.0)
"""Samples on a machine with 16 cores. CROWDED leaves the program a quarter of what it might use."""


@pytest.mark.parametrize(
    ("before", "after", "mean", "expected"),
    [
        pytest.param(ALONE, CROWDED, 0.15, ChangeVerdict.UNCLEAR, id="the slower run was disturbed"),
        pytest.param(CROWDED, ALONE, 0.07, ChangeVerdict.UNCLEAR, id="the faster run was not disturbed"),
        pytest.param(CROWDED, CROWDED, 0.15, ChangeVerdict.UNCLEAR, id="slower, both disturbed"),
        pytest.param(CROWDED, CROWDED, 0.07, ChangeVerdict.UNCLEAR, id="faster, both disturbed"),
        pytest.param(CROWDED, CROWDED, 0.1, ChangeVerdict.UNCLEAR, id="equal, both disturbed"),
        pytest.param(CROWDED, ALONE, 0.15, ChangeVerdict.WORSE, id="slower although undisturbed"),
        pytest.param(ALONE, CROWDED, 0.07, ChangeVerdict.BETTER, id="faster although disturbed"),
        pytest.param(CROWDED, CROWDED, 0.5, ChangeVerdict.WORSE, id="slower than the disturbance explains"),
        pytest.param(CROWDED, CROWDED, 0.02, ChangeVerdict.BETTER, id="faster than the disturbance explains"),
        pytest.param(ALONE, LEAVING, 0.15, ChangeVerdict.WORSE, id="other programs left cores free"),
    ],
)
def test_busy_machine_excuses_only_time_others_could_have_taken(before, after, mean, expected):
    found = compare(run(host=before), run(mean, host=after))

    assert found.verdict is expected
    assert found.mean.verdict is expected
    assert {row(found.phases, name).verdict for name in ("forward", "backward")} == {expected}
    assert found.crowded == "".join(name for name, host in zip("AB", (before, after), strict=True) if host is CROWDED)


def test_settings_and_environment_that_differ_are_named():
    def of(cores, workers, flags):
        fact = LoaderFact(id=1, num_workers=workers)
        return run(run=replace(RUN, cores=cores), loaders=(fact,), flags=flags)

    found = compare(of(8.0, 0, FlagsFact(autocast=True)), of(4.0, 5, None))

    assert [(each.group, each.name) for each in found.settings] == [("loader", "num_workers"), ("flags", "seen")]
    assert (found.settings[0].before, found.settings[0].after) == (0, 5)
    assert found.settings[1].after is None
    assert [(each.group, each.name) for each in found.environment] == [("machine", "cores")]


def test_json_result_has_null_for_missing_bounds():
    few = compare(run(number=12), run(number=4)).result()

    result = json.loads(json.dumps(few, allow_nan=False))

    assert result["schema"] == "profile-train/comparison@1"
    assert ChangeVerdict(result["verdict"]) is ChangeVerdict.TOO_FEW
    assert result["steps"][0]["change"]["low"] is None


def test_non_utf_8_name_is_kept_in_result():
    name = os.fsdecode(b"runs/\xff")

    found = compare(run(), run(), names=(name, "b")).result()

    assert json.loads(json.dumps(found))["before"]["folder"] == name


def test_identical_runs_rarely_differ_significantly():
    """Steps scatter by 5 %, with an autocorrelation of 0.4; any significant difference counts."""
    chance = Random(0)

    def scattered():
        noise, made = 0.0, []
        for _ in range(140):
            noise = 0.4 * noise + chance.gauss(0.0, 0.05)
            made.append(0.1 * (1 + noise))
        return run(made=steps(*made))

    verdicts = [compare(scattered(), scattered(), relevant=1e-9).mean.verdict for _ in range(150)]

    assert sum(verdict is not ChangeVerdict.UNCLEAR for verdict in verdicts) <= 15


def test_faster_steps_do_not_hide_what_is_lost_between_them():
    found = compare(run(made=saving(0.05)), run(made=tuple(replace(s, duration=0.9 * s.duration) for s in saving(0.3))))

    assert found.mean.verdict is ChangeVerdict.BETTER
    assert found.whole.change.estimate == pytest.approx(found.whole.after / found.whole.before - 1)
    assert found.verdict is ChangeVerdict.WORSE


def test_rare_long_checkpoints_do_not_hide_slower_steps():
    def rare(mean):
        made = steps(*times(mean), checkpoint_save=0.0)
        return tuple(replace(each, checkpoint_save=9.0) if i in (40, 90, 120) else each for i, each in enumerate(made))

    found = compare(run(made=rare(0.1)), run(made=rare(0.13)))

    assert (found.whole.verdict, found.verdict) == (ChangeVerdict.UNCLEAR, ChangeVerdict.WORSE)
