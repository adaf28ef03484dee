"""Checkpoints are saved more often, or more seldom, than failures call for.

A save stops the training; a failure loses what was done since the last one. The best interval balances the two and
follows from the time of a save and the mean time between failures (Young, Daly). How often the job fails cannot be
seen in a run: where it was declared (`--mtbf`), the interval is Daly's. Where it was not, saving is brought to 2 % of
the time, and nothing is said to be best.

Wrong when: the machine is taken away more often than was declared, or, with nothing declared, more often than the
advice names: then save as often as now. A run that was recorded for its first minutes only may show more saves than
its rest.
"""

from __future__ import annotations

import math

from advisor.metrics.base import Metrics, Threshold
from advisor.metrics.between import checkpoint_save_seconds, checkpoint_save_share, checkpoint_saves
from advisor.metrics.goals import time_between_failures
from advisor.metrics.saving import checkpoint_interval, checkpoint_save_uncertainty
from advisor.metrics.step import step_time_mean
from advisor.models.checkpoint_interval import daly, inflation
from advisor.models.effects import LAUNCHED, in_turn, remove, remove_seconds
from advisor.models.state import Effect
from advisor.rules._spelling import spelling
from advisor.rules.base import Advice, Confidence, Evidence, Fact, Rule, Source, Tier
from advisor.units import seconds, share

MOST = Threshold(0.02, "Without a known rate of failures: more than this is dear insurance (assumption).")

MIN_SAVES = Threshold(2, "One save may be that of the run's end, which has no interval.")

TOO_OFTEN = Threshold(0.5, "Of Daly's interval; from half to twice of it the time lost is nearly the same.")

TOO_SELDOM = Threshold(2.0, "Of Daly's interval, as above.")

# Failures come twice as often as declared, or half as often (assumption).
MTBF_TIMES = (0.5, 1.0, 2.0)

# Mean times between failures that are given as examples: machines that may be taken away, and others (assumptions).
USUAL = (("once an hour", 3600.0), ("once a day", 86400.0))

# A save that stops the training for so many seconds is worth writing in the background.
LONG = 5.0

# From the 10th to the 90th percentile: so many standard errors, of the saves recorded and of as many to come.
ERRORS = 1.28 * math.sqrt(2)

# Without a spread: one save takes longer than another, as the disk has it (assumption).
SAVES_DIFFER = 0.2

# Of a save's time, what the steps after it lose at most while its data goes to the disk. Between none, by their CPU
# time, and 0.3 to 0.7 by the clock on two busy cores; nothing is expected where cores are free.
WRITING_BEHIND = 0.3


def when(m: Metrics) -> Evidence | None:
    """If checkpoints were saved twice or more and, where the time between failures was declared, the work between two
    saves is less than half or more than twice Daly's interval, or, where it was not, saving took at least 2 % of the
    run,
    """
    part, saves = m[checkpoint_save_share], m[checkpoint_saves]
    if saves < m[MIN_SAVES] or part <= 0:
        return None
    note = f"{seconds(m[checkpoint_save_seconds])} a save, every {seconds(m[checkpoint_interval])} of training"
    counted = Fact(checkpoint_saves, saves, m[MIN_SAVES])
    failures = m.get(time_between_failures)
    if failures is None:
        return Evidence((Fact(checkpoint_save_share, part, m[MOST]), counted), note) if part >= m[MOST] else None
    interval, best = m[checkpoint_interval], _best(m, failures)
    if m[TOO_OFTEN] * best <= interval <= m[TOO_SELDOM] * best:
        return None
    often = interval < best
    limit = Fact(checkpoint_interval, interval, m[TOO_OFTEN if often else TOO_SELDOM] * best, "<" if often else ">")
    return Evidence((limit, counted, Fact(time_between_failures, failures)), note)


def then(m: Metrics, found: Evidence) -> Advice:
    """then save at Daly's interval or, without a declared time between failures, so seldom that it costs 2 %."""
    save, now, step = m[checkpoint_save_seconds], m[checkpoint_interval], m[step_time_mean]
    failures = m.get(time_between_failures)
    interval = _longest(m) if failures is None else _best(m, failures)
    every = max(1, math.ceil(interval / step))
    background = (
        " A save as long as this is worth writing in the background: it then stops the training only for a copy."
        if save >= LONG
        else ""
    )
    why = _examples(m) if failures is None else f"That is Daly's interval for a failure every {seconds(failures)}."
    return Advice(
        then=f"Save every {every} steps ({seconds(interval)}) instead of every {seconds(now)}: a save stops "
        f"the training for {seconds(save)}, {share(m[checkpoint_save_share])} of the run in all. {why}{background}",
        changes=spelling(m).save_every(every, seconds(interval), in_background=save >= LONG),
        basis="Saves that are left out take no time; they may take longer or shorter than those recorded, by their "
        "standard error, and at best the steps after them become faster, too.",
        effect=_effect(m, interval) if interval > now else None,
        cost=None if failures is None else _cost(m, interval, failures),
        memory=0,
        risk=f"Low: a failure loses up to {seconds(interval)} of training.",
    )


def _best(m: Metrics, failures: float) -> float:
    """Daly's tau; no more often than saves can follow one another."""
    return max(daly(m[checkpoint_save_seconds], failures), m[checkpoint_save_seconds])


def _longest(m: Metrics) -> float:
    """Seconds of work between two saves of which saving takes 2 %: delta (1 - 2 %) / 2 %; no less than now."""
    return max(m[checkpoint_save_seconds] * (1 - m[MOST]) / m[MOST], m[checkpoint_interval])


def _examples(m: Metrics) -> str:
    usual = " and ".join(f"{seconds(_best(m, time))} if it fails {often}" for often, time in USUAL)
    return (
        f"Then saving costs {share(m[MOST])} of the time. How often the job fails was not declared (--mtbf): the best "
        f"interval would be {usual}."
    )


def _effect(m: Metrics, interval: float) -> Effect:
    fewer = 1 - m[checkpoint_interval] / interval
    error = m.get(checkpoint_save_uncertainty)
    apart = min(1.0, SAVES_DIFFER if error is None else ERRORS * error)
    saving = m[step_time_mean] * m[checkpoint_save_seconds] / m[checkpoint_interval]
    """Seconds of saves for each step."""
    return in_turn(
        remove("checkpoint_save", shares=(fewer * (1 - apart), fewer, fewer)),
        remove_seconds(*LAUNCHED, seconds=fewer * saving, shares=(0.0, 0.0, apart + WRITING_BEHIND)),
    )


def _cost(m: Metrics, interval: float, failures: float) -> tuple[float, float, float]:
    """1 - E(then)/E(now) for as many failures as declared, twice and half as many. A restart falls out of it."""
    save, now = m[checkpoint_save_seconds], m[checkpoint_interval]

    def saved(between: float) -> float:
        before = inflation(now, save, between, restart=0.0)
        return 1.0 if math.isinf(before) else 1 - inflation(interval, save, between, restart=0.0) / before

    low, expected, high = sorted(saved(times * failures) for times in MTBF_TIMES)
    return low, expected, high


RULE = Rule(
    title="Save checkpoints as often as failures call for",
    tier=Tier.COST,
    when=when,
    then=then,
    confidence=Confidence.PHASE_REMOVAL,
    difficulty=1,
    sources=(
        Source(
            "Daly, A higher order estimate of the optimum checkpoint interval for restart dumps, FGCS 2006",
            "https://doi.org/10.1016/j.future.2004.11.016",
        ),
        Source(
            "Young, A first order approximation to the optimum checkpoint interval, CACM 1974",
            "https://doi.org/10.1145/361147.361115",
        ),
    ),
)
