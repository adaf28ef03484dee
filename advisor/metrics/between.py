"""Time outside the steady steps: evaluation, checkpoints, epoch starts, recompilation."""

import math
from collections.abc import Callable, Sequence
from statistics import fmean, stdev

from advisor.metrics.base import Metrics, Missing, known, metric
from advisor.metrics.settings import primary_rank
from advisor.metrics.step import WARM_UP, steady_steps, step_time_mean, summed, time_between
from advisor.metrics.weighted import quantile
from profiler import schema
from profiler.schema import Step

_ODD = schema.TAG_FIRST | schema.TAG_WINDOW | schema.TAG_COMPILE | schema.TAG_UNREACHED
"""Tags of unusual steps: the run's first step, steps that compile, and steps in profiler windows."""

FEWEST_SAVES = 3
"""Minimum number of saves to compute a spread of their times."""

_NAMES = {"evaluation": "Evaluation", "checkpoint_save": "Saving checkpoints", "epoch_start": "Starting epochs"}


@metric("1", "share of the run in evaluation")
def evaluation_share(m: Metrics) -> float:
    """Share of the run (first to last step) that evaluation between steps takes."""
    return _share_of_run(m, "evaluation")


@metric("count", "evaluations")
def evaluations(m: Metrics) -> int:
    """Number of steps with an evaluation. In a row of merged steps, all steps count."""
    return sum(step.count for step in _seen(m) if step.tags & schema.TAG_EVALUATION)


@metric("1", "share of the run in saving checkpoints")
def checkpoint_save_share(m: Metrics) -> float:
    """Share of the run (first to last step) that saving checkpoints between steps takes."""
    return _share_of_run(m, "checkpoint_save")


@metric("count", "number of checkpoints saved")
def checkpoint_saves(m: Metrics) -> int:
    """Number of steps after which checkpoints were saved. In a row of merged steps, all steps count."""
    return sum(step.count for step in m[primary_rank].steps if step.tags & schema.TAG_CHECKPOINT)


@metric("s", "time to save a checkpoint")
def checkpoint_save_seconds(m: Metrics) -> float:
    """Mean seconds that saving stops the training, per step that saves a checkpoint."""
    total = summed(m[primary_rank].steps, "checkpoint_save")
    if not total or not m[checkpoint_saves]:
        raise Missing("No checkpoint was saved", "Record a run that saves checkpoints.")
    return total / m[checkpoint_saves]


@metric("s", "training time between two checkpoints")
def checkpoint_interval(m: Metrics) -> float:
    """Mean seconds of training between two saves, without the saves themselves."""
    share = m[checkpoint_save_share]
    if share <= 0:
        raise Missing("No checkpoint was saved", "Record a run that saves checkpoints.")
    return m[checkpoint_save_seconds] * (1 - share) / share


@metric("1", "uncertainty of the time to save a checkpoint")
def checkpoint_save_uncertainty(m: Metrics) -> float:
    """Standard error of the mean save time, divided by that mean. For merged steps it is a lower bound."""
    steps = [step for step in m[primary_rank].steps if step.tags & schema.TAG_CHECKPOINT]
    times = [step.checkpoint_save or 0.0 for step in steps]
    if len(times) < FEWEST_SAVES or fmean(times) <= 0:
        raise Missing(f"Fewer than {FEWEST_SAVES} saves were timed", "Record a run with more of them.")
    return stdev(times) / math.sqrt(len(times)) / fmean(times)


@metric("1", "share of the run in starting epochs")
def epoch_start_share(m: Metrics) -> float:
    """Share of the run (first to last step) that starting epochs takes: iterator, workers, first fetch."""
    return _share_of_run(m, "epoch_start")


@metric("1", "share of the run lost to slow first steps of epochs")
def epoch_settling_share(m: Metrics) -> float:
    """Share of the run lost because the first steps of later epochs are slower than the median steady step.

    Work between epochs is not included. A typical cause is forked workers: the first write to each memory page then
    copies the page.
    """
    return _beyond_usual(m, lambda step: None if step.other is None else step.duration - step.other) / _run(m)


@metric("1", "share of the run between epochs")
def epoch_gap_share(m: Metrics) -> float:
    """Share of the run between epochs: a pause, or the program's own work there.

    This is the extra time of the first steps of later epochs beyond the usual remainder of a step. Evaluation, saving
    and epoch starts are excluded.
    """
    return _beyond_usual(m, lambda step: step.other) / _run(m)


@metric("count", "steps that recompiled")
def recompiles(m: Metrics) -> int:
    """Number of steps after the first in which `torch.compile` created another graph.

    For merged steps this is a lower bound. If a shape differs at every step, all variants are used up within the first
    ten steps.
    """
    return sum(count for _, count in _recompiling(m, after=1))


@metric("1", "share of the run in recompiling")
def recompile_share(m: Metrics) -> float:
    """Share of all step time that is lost to recompilation after warm-up: the time beyond a mean steady step.

    Steps in profiler windows are excluded. So is compilation at the start: it happens once and would weigh too much in
    a short recording.
    """
    excess = sum(
        max(0.0, step.duration - m[step_time_mean]) * count
        for step, count in _recompiling(m, after=WARM_UP)
        if not step.tags & schema.TAG_WINDOW
    )
    seconds = math.fsum(step.count * step.duration for step in m[primary_rank].steps)
    if seconds <= 0:
        raise Missing("The steps took no time", "Record the run again; if this happens again, report it as a bug.")
    return excess / seconds


@metric(None)
def between_seconds(m: Metrics) -> dict[str, float]:
    """Seconds per step of evaluation, saving, epoch starts, slow first steps of epochs, and gaps between epochs.

    Only what was measured is included; the seconds are divided by all steps of the run.
    """
    steps = _seen(m)
    number = sum(step.count for step in steps)
    sums = {name: summed(steps, name) for name in schema.BETWEEN}
    for name, share_metric in (("epoch_settling", epoch_settling_share), ("epoch_gap", epoch_gap_share)):
        if share := m.get(share_metric):
            sums[name] = share * _run(m)
    return {name: total / number for name, total in sums.items() if total is not None}


def _seen(m: Metrics) -> Sequence[Step]:
    steps = m[primary_rank].steps or None
    return known(steps, "No training step was seen", "Let the run reach an optimizer step.")


def _recompiling(m: Metrics, after: int) -> list[tuple[Step, int]]:
    """Return the recompiling rows from step `after` on, each with the number of steps that recompiled.

    Merged rows mix the tags of their steps, so only one step of such a row counts.
    """
    steps = [step for step in _seen(m) if step.index >= after and step.tags & schema.TAG_COMPILE]
    return [(step, step.count if step.tags == schema.TAG_COMPILE else 1) for step in steps]


def _share_of_run(m: Metrics, name: str) -> float:
    total = summed(m[primary_rank].steps, name)
    return known(total, f"{_NAMES[name]} was not measured", "Record a run that includes it.") / _run(m)


def _run(m: Metrics) -> float:
    """Return the seconds of all steps and of the time between them.

    Unusual steps count as steady ones, because a long run has few of them.
    """
    steps = m[primary_rank].steps
    seconds = sum(
        step.count * ((m[step_time_mean] if step.tags & _ODD else step.duration) + time_between(step)) for step in steps
    )
    if seconds <= 0:
        raise Missing("The steps took no time", "Record the run again; if this happens again, report it as a bug.")
    return seconds


def _beyond_usual(m: Metrics, part: Callable[[Step], float | None]) -> float:
    """Return the total seconds by which a part of later epochs' first steps exceeds its steady median."""
    starts = [step for step in m[primary_rank].steps if step.tags & schema.TAG_EPOCH_START and not step.tags & _ODD]
    if not starts:
        raise Missing("No start of a later epoch was seen", "Record a run of two epochs or more.")
    weighted = [(value, step.count) for step in m[steady_steps] if not step.tags and (value := part(step)) is not None]
    if not weighted:
        raise Missing("Every observed step begins an epoch", "Record a run with longer epochs.")
    median = quantile(weighted, 0.5)
    return max(0.0, sum(step.count * (value - median) for step in starts if (value := part(step)) is not None))
