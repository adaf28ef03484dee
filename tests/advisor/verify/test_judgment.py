"""Verdicts on arms with step times written by hand."""

from dataclasses import replace
from random import Random

import pytest
from snapshots import same, scenes

from advisor.judging.verdict import Verdict
from advisor.verify.arm import WARM_UP, Arm
from advisor.verify.judgment import judged
from advisor.verify.longer import longer

PREDICTED = (0.4, 0.5, 0.6)


def arm(seconds, *, number=60, cv=0.02, between=0.0, losses=(), memory=None, seed=0):
    random = Random(seed)
    times = tuple(seconds * (1 + cv * random.gauss(0, 1)) for _ in range(number))
    return Arm(times=times, between=between, losses=tuple(losses), memory=memory)


def arms(seconds, **how):
    return [arm(seconds * factor, seed=seed, **how) for seed, factor in enumerate((1.0, 1.01, 0.99))]


@pytest.mark.parametrize(
    ("after", "verdict"),
    [
        (0.05, Verdict.CONFIRMED),
        (0.02, Verdict.BETTER),
        (0.08, Verdict.PARTIAL),
        (0.1, Verdict.INCONCLUSIVE),
        (0.15, Verdict.HARMFUL),
    ],
)
def test_a_change_is_judged_by_what_it_removes(after, verdict):
    found = judged(arms(0.1), arms(after), PREDICTED, same_losses=False)

    assert found.verdict is verdict
    low, estimate, high = found.removed
    assert low <= estimate <= high
    assert estimate == pytest.approx(1 - after / 0.1, abs=0.01)
    assert found.seconds == pytest.approx((0.1, after), rel=0.02)
    assert (found.steps, found.processes) == (180, 3)


def test_interval_wider_than_gain_is_inconclusive():
    before = [arm(0.1 * factor, seed=seed) for seed, factor in enumerate((0.75, 1.0, 1.25))]
    after = [arm(0.055 * factor, seed=seed) for seed, factor in enumerate((0.85, 1.0, 1.15))]

    found = judged(before, after, (0.34, 0.38, 0.42), same_losses=False)

    assert 0.02 < found.removed[0] < 0.34 < 0.42 < found.removed[2]
    assert found.removed[2] - found.removed[0] > found.removed[1]
    assert (found.verdict, bool(found.why)) == (Verdict.INCONCLUSIVE, True)
    assert judged(before, after, None, same_losses=False).verdict is Verdict.CONFIRMED


def test_certain_absence_of_gain_is_refuted():
    after = [arm(0.0999 * factor, seed=9, cv=0.0) for factor in (1.0, 1.0, 1.0)]

    assert judged([arm(0.1, cv=0.0)] * 3, after, PREDICTED, same_losses=False).verdict is Verdict.REFUTED


def test_processes_that_differ_widen_the_interval():
    before = [arm(seconds, seed=seed) for seed, seconds in enumerate((0.05, 0.1, 0.15))]
    found = judged(before, arms(0.05), PREDICTED, same_losses=False)

    assert found.verdict is Verdict.INCONCLUSIVE
    assert found.removed[0] < 0 < found.removed[2]
    assert "Runs differ" in found.why


def test_noisy_trial_says_how_many_steps_it_needs():
    def tried(number):
        return judged(
            [arm(0.1, cv=0.2, number=number)] * 3, [arm(0.097, cv=0.2, number=number)] * 3, PREDICTED, same_losses=False
        )

    assert tried(60).verdict is Verdict.INCONCLUSIVE
    steps = int(tried(60).why.split("--steps ")[1].rstrip("."))
    assert tried(steps - WARM_UP).verdict is Verdict.PARTIAL


def test_slow_tail_is_harmful():
    tail = Arm(times=(*[0.04] * 51, *[0.2] * 9), between=0.0, losses=(), memory=None)
    found = judged(arms(0.1), [tail] * 3, PREDICTED, same_losses=False)
    assert (found.verdict, found.removed[0] > 0) == (Verdict.HARMFUL, True)


def test_any_speedup_is_confirmed_without_prediction():
    assert judged(arms(0.1), arms(0.09), None, same_losses=False).verdict is Verdict.CONFIRMED


def test_different_losses_are_harmful_if_they_must_agree():
    losses = [1.0 - step / 200 for step in range(60)]
    other = [loss * 1.2 for loss in losses]
    before, after = arms(0.1, losses=losses), arms(0.05, losses=other)

    assert judged(before, after, PREDICTED, same_losses=True).verdict is Verdict.HARMFUL
    trial = judged(before, after, PREDICTED, same_losses=False)
    assert (trial.verdict, trial.losses_agree) == (Verdict.CONFIRMED, False)
    same = judged(before, arms(0.05, losses=losses), PREDICTED, same_losses=True)
    assert (same.verdict, same.losses_agree) == (Verdict.CONFIRMED, True)


def test_different_noise_in_losses_is_not_harm():
    """A compiled model's dropout, for example, drops other values."""
    random = Random(3)
    losses, other = ([1.0 + 0.1 * random.gauss(0, 1) for _ in range(60)] for _ in range(2))
    found = judged(arms(0.1, losses=losses), arms(0.05, losses=other), PREDICTED, same_losses=True)

    assert (found.verdict, found.losses_agree) == (Verdict.CONFIRMED, None)


def test_non_finite_losses_are_harmful():
    found = judged(arms(0.1, losses=[1.0] * 60), arms(0.05, losses=[None] * 60), PREDICTED, same_losses=True)

    assert (found.verdict, found.losses_agree) == (Verdict.HARMFUL, False)


def test_losses_that_cannot_be_compared_are_not_judged():
    found = judged(arms(0.1, losses=[-1.0] * 40), arms(0.05, losses=[-1.0] * 40), PREDICTED, same_losses=True)

    assert (found.verdict, found.losses_agree) == (Verdict.CONFIRMED, None)


def test_stalls_between_steps_count_in_full():
    """A trimmed mean would leave them out."""
    stalls = arm(0.1, cv=0.0)
    stalling = [Arm(times=(*stalls.times[:-5], *[1.0] * 5), between=0.4, losses=(), memory=None)] * 3
    found = judged(stalling, [arm(0.1, cv=0.0)] * 3, PREDICTED, same_losses=False)

    assert found.removed[1] == pytest.approx(1 - 0.1 / (0.1 * 55 / 60 + 5 / 60), abs=0.01)


def with_epochs(seed, *, every=20, start=0.5, period=20):
    """Return steps of 20 ms, of which every `every`-th starts an epoch."""
    times = arm(0.02, number=40, seed=seed).times
    starts = tuple(time + start * (index % every == 5) for index, time in enumerate(times))
    return Arm(times=starts, between=0.5, period=period, losses=(), memory=None)


def test_number_of_epoch_starts_is_not_treated_as_chance():
    """If steps were drawn singly, one epoch's start more or less would be a quarter of the time."""
    before, after = ([with_epochs(seed) for seed in seeds] for seeds in ((0, 1, 2), (3, 4, 5)))
    found = judged(before, after, PREDICTED, same_losses=False)
    singly = judged(*([replace(arm, period=1) for arm in arms] for arms in (before, after)), None, same_losses=False)

    assert found.removed[2] - found.removed[0] < 0.1
    assert singly.removed[2] - singly.removed[0] > 0.5
    assert found.removed[0] < 0 < found.removed[2]


def test_period_longer_than_trial_is_capped():
    before, after = (
        [with_epochs(seed, every=10**6, period=1000) for seed in seeds] for seeds in ((0, 1, 2), (3, 4, 5))
    )

    assert judged(before, after, PREDICTED, same_losses=False).removed[0] < 0


def with_tail(seed, tail, rest=1.0):
    """Return an arm in which one step in six takes `tail` times as long, and the others `rest` times."""
    times = arm(0.1, seed=seed).times
    return Arm(
        times=tuple(time * (rest if index % 6 else tail) for index, time in enumerate(times)),
        between=0.0,
        losses=(),
        memory=None,
    )


def test_occasional_slow_steps_are_harmful_only_in_every_process():
    before = [with_tail(seed, 1.0) for seed in range(3)]
    found = judged(before, [with_tail(seed, 1.3, rest=0.95) for seed in (3, 4, 5)], PREDICTED, same_losses=False)
    after = [with_tail(3, 1.0), with_tail(4, 1.0), with_tail(5, 2.0)]

    assert found.verdict is Verdict.HARMFUL
    assert judged(before, after, PREDICTED, same_losses=False).verdict is not Verdict.HARMFUL


def test_snapshot_of_reasons():
    losses = [1.0 - step / 200 for step in range(60)]
    slow_tail = Arm(times=(*[0.04] * 51, *[0.2] * 9), between=0.0, losses=(), memory=None)
    trials = {
        "slower": (arms(0.1), arms(0.15)),
        "slower steps now and then": (arms(0.1), [slow_tail] * 3),
        "other losses": (arms(0.1, losses=losses), arms(0.05, losses=[loss * 1.2 for loss in losses])),
        "losses that are not finite": (arms(0.1, losses=[1.0] * 60), arms(0.05, losses=[None] * 60)),
    }
    whys = {name: judged(*both, PREDICTED, same_losses="losses" in name).why for name, both in trials.items()}
    noises = {
        "steps that vary": (0.05, 0.02, 0.0),
        "processes that differ": (0.1, 0.001, 0.05),
        "processes that differ by far": (0.05, 0.001, 0.3),
        "next to no gain": (0.0001, 0.02, 0.0),
    }
    more = {
        name: longer(gain, steps=60, steps_noise=steps, processes=3, process_noise=process)
        for name, (gain, steps, process) in noises.items()
    }
    same("reasons.txt", scenes(whys | more))


def test_memory_is_compared_at_the_peak():
    assert judged(arms(0.1, memory=10), arms(0.05, memory=14), PREDICTED, same_losses=False).memory == 4
    assert judged(arms(0.1), arms(0.05, memory=14), PREDICTED, same_losses=False).memory is None


@pytest.mark.parametrize(
    ("freed", "after", "verdict"),
    [
        (100, 0.11, Verdict.CONFIRMED),
        (200, 0.11, Verdict.BETTER),
        (40, 0.11, Verdict.PARTIAL),
        (4, 0.11, Verdict.REFUTED),
        (100, 0.15, Verdict.HARMFUL),
        (None, 0.11, Verdict.INCONCLUSIVE),
    ],
)
def test_memory_change_is_judged_by_memory_it_frees(freed, after, verdict):
    less = None if freed is None else 1000 - freed
    found = judged(
        arms(0.1, memory=1000),
        arms(after, memory=less),
        (-0.2, -0.1, -0.05),
        same_losses=True,
        memory=-100,
    )

    assert found.verdict is verdict


def test_too_few_steps_are_not_compared():
    with pytest.raises(ValueError, match="record more"):
        judged([arm(0.1, number=3)], [arm(0.1, number=3)], PREDICTED, same_losses=False)
