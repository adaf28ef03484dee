"""Checkpoints are saved so often that saving itself takes a good part of the run.

A save stops the training; a failure loses what was done since the last one. The best interval balances the two and
follows from the time of a save and the mean time between failures (Young, Daly). How often the machine fails is not
recorded: so the rule only caps what saving costs at 2 % of the time, and says for which rate of failures that interval
is Daly's.

Wrong when: the machine fails, or is taken away, more often than the advice names: then save as often as now. A run
that was recorded for its first minutes only may show more saves than its rest.
"""

from __future__ import annotations

import math

from advisor.metrics.base import Metrics, Threshold
from advisor.metrics.step import checkpoint_save_seconds, checkpoint_save_share, checkpoint_saves, step_time_mean
from advisor.models.effects import Triple, remove
from advisor.rules._spelling import spelling
from advisor.rules.base import Advice, Confidence, Evidence, Fact, Rule, Source, Tier
from advisor.units import seconds, share

MOST = Threshold(0.02, "Without a known rate of failures: more than this is dear insurance (assumption).")

MIN_SAVES = Threshold(2, "One save may be that of the run's end, which has no interval.")

# A save that stops the training for so many seconds is worth writing in the background.
LONG = 5.0

# Of the expected saving, low, expected, high: one save takes longer than another, as the disk has it (assumption).
SAVES_DIFFER = (0.8, 1.0, 1.1)


def when(m: Metrics) -> Evidence | None:
    """If checkpoints were saved twice or more, and saving took at least 2 % of the run,"""
    part, saves = m[checkpoint_save_share], m[checkpoint_saves]
    if part < m[MOST] or saves < m[MIN_SAVES]:
        return None
    return Evidence(
        (Fact(checkpoint_save_share, part, m[MOST]), Fact(checkpoint_saves, saves, m[MIN_SAVES])),
        note=f"{seconds(m[checkpoint_save_seconds])} a save, every {seconds(_interval(m))} of training",
    )


def then(m: Metrics, found: Evidence) -> Advice:
    """then save so seldom that it costs 2 % of the time, unless failures are known to be frequent."""
    save, interval = m[checkpoint_save_seconds], _longest(m)
    every = math.ceil(interval / m[step_time_mean])
    # Young's tau = sqrt(2 delta M), solved for M.
    failures = interval**2 / (2 * save)
    background = (
        " A save as long as this is worth writing in the background: it then stops the training only for a copy."
        if save >= LONG
        else ""
    )
    changes = spelling(m).save_every(every, seconds(interval), in_background=save >= LONG)
    return Advice(
        then=f"Save every {every} steps ({seconds(interval)}) instead of every {seconds(_interval(m))}: a save stops "
        f"the training for {seconds(save)}, {share(m[checkpoint_save_share])} of the run in all. That is the best "
        f"interval if something fails every {seconds(failures)}; if it fails more often, save more often." + background,
        changes=changes,
        basis="The mean time between failures is not known: saving is brought to 2 % of the time.",
        effect=remove("checkpoint_save", shares=_gone(m, interval)),
        memory=0,
        risk=f"Low: a failure loses up to {seconds(interval)} of training.",
    )


def _gone(m: Metrics, interval: float) -> Triple:
    """Share of the time in saves that goes with so many seconds between them."""
    fewer = max(0.0, 1 - _interval(m) / interval)
    low, expected, high = (min(1.0, factor * fewer) for factor in SAVES_DIFFER)
    return low, expected, high


def _interval(m: Metrics) -> float:
    """Seconds of work between two saves: what a save's share leaves of a cycle."""
    part = m[checkpoint_save_share]
    return m[checkpoint_save_seconds] * (1 - part) / part


def _longest(m: Metrics) -> float:
    """Seconds of work between two saves of which saving takes 2 %: delta (1 - 2 %) / 2 %; no less than now."""
    return max(m[checkpoint_save_seconds] * (1 - m[MOST]) / m[MOST], _interval(m))


RULE = Rule(
    title="Save checkpoints less often",
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
