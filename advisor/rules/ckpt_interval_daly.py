"""Checkpoints are saved too often or too rarely for the failure rate.

Saving a checkpoint stops the training; a failure loses all work since the last checkpoint. The best interval balances
these two costs. It depends on how long a save takes and on the mean time between failures (Young, Daly). A recording
does not show how often the job fails. If you declare it (`--mtbf`), the rule advises Daly's interval. Otherwise it
reduces saving to 2 % of the time, without calling that optimal.

Wrong when: the machine is interrupted more often than you declared or, without a declaration, more often than the
advice states; then keep the current interval. A recording of only the first minutes may contain more saves than the
rest of the run.

Source: Daly, A higher order estimate of the optimum checkpoint interval for restart dumps, FGCS 2006, https://doi.org/10.1016/j.future.2004.11.016
Source: Young, A first order approximation to the optimum checkpoint interval, CACM 1974, https://doi.org/10.1145/361147.361115
"""

import math

from advisor.metrics import Metrics, Threshold, between, goals, step
from advisor.models.checkpoint_interval import daly, inflation
from advisor.models.effects import LAUNCHED, Triple, in_turn, remove, remove_seconds
from advisor.models.state import Effect
from advisor.rules._spelling import spelling
from advisor.rules.base import Advice, Area, Confidence, Evidence, Rule, evidence, measure
from advisor.units import seconds, share

RULE = Rule("Match the checkpoint interval to the failure rate", Area.COST, Confidence.PHASE_REMOVAL)

MOST = Threshold(0.02, "If the failure rate is unknown, saving costs too much above this share (assumption).")

MIN_SAVES = Threshold(2, "A single save may be the one at the end of the run, which has no interval.")

TOO_OFTEN = Threshold(
    0.5, "Fraction of Daly's interval; between half and twice that interval the lost time is nearly the same."
)

TOO_SELDOM = Threshold(2.0, "Fraction of Daly's interval, as above.")

# Failures may be twice as frequent as declared, or half as frequent (assumption).
MTBF_TIMES = (0.5, 1.0, 2.0)

# Example mean times between failures: machines that can be preempted, and others (assumptions).
USUAL = (("once an hour", 3600.0), ("once a day", 86400.0))

# Seconds; a save that stops the training for this long is worth writing in the background.
LONG = 5.0

# Standard errors from the mean to the 10th or 90th percentile; sqrt(2) because as many future saves vary as well.
ERRORS = 1.28 * math.sqrt(2)

# Relative spread if none was measured: the duration of saves varies with the disk (assumption).
SAVES_DIFFER = 0.2

# Largest share of a save's time that the following steps lose while its data is written to the disk. Measured on two
# busy cores: none by CPU time, 0.3 to 0.7 by wall time. No loss is expected if cores are free.
WRITING_BEHIND = 0.3


def when(m: Metrics) -> Evidence | None:
    """If at least two checkpoints were saved, and the time between saves is less than half or more than twice Daly's
    interval, or no time between failures was declared and saving takes at least 2 % of the run,
    """
    saves = measure(m, between.checkpoint_saves, ">=", MIN_SAVES)
    save_share = measure(m, between.checkpoint_save_share, ">=", MOST)
    if not saves.holds or save_share.value <= 0:
        return None
    save_seconds, interval = m[between.checkpoint_save_seconds], m[between.checkpoint_interval]
    note = f"{seconds(save_seconds)} per save, every {seconds(interval)} of training"
    failures = m.get(goals.time_between_failures)
    if failures is None:
        return evidence(save_share, saves, note=note)
    best_interval = _best(save_seconds, failures)
    too_often = interval < best_interval
    limit = measure(
        m,
        between.checkpoint_interval,
        "<" if too_often else ">",
        m[TOO_OFTEN if too_often else TOO_SELDOM] * best_interval,
    )
    return evidence(limit, saves, measure(m, goals.time_between_failures), note=note)


def then(m: Metrics, found: Evidence) -> Advice:
    """then save at Daly's interval or, if no time between failures was declared, so that saving costs 2 %."""
    save_seconds, old_interval, step_time = (
        m[between.checkpoint_save_seconds],
        m[between.checkpoint_interval],
        m[step.step_time_mean],
    )
    failures = m.get(goals.time_between_failures)
    if failures is None:
        interval = max(save_seconds * (1 - m[MOST]) / m[MOST], old_interval)
        examples = " and ".join(
            f"{seconds(_best(save_seconds, mtbf))} if it fails {frequency}" for frequency, mtbf in USUAL
        )
        reason = (
            f"Saving then costs {share(m[MOST])} of the time. The failure rate of the job was not declared (--mtbf): "
            f"the best interval would be {examples}."
        )
    else:
        interval = _best(save_seconds, failures)
        reason = f"That is Daly's interval for a failure every {seconds(failures)}."
    steps = max(1, math.ceil(interval / step_time))
    background_note = (
        " Write a save this long in the background: training then stops only for a copy."
        if save_seconds >= LONG
        else ""
    )
    return Advice(
        then=f"Save every {steps:,} steps ({seconds(interval)}) instead of every "
        f"{max(1, round(old_interval / step_time)):,} ({seconds(old_interval)}): each save stops training for "
        f"{seconds(save_seconds)}, in total {share(m[between.checkpoint_save_share])} of the run. "
        f"{reason}{background_note}",
        changes=spelling(m).save_every(steps, seconds(interval), in_background=save_seconds >= LONG),
        basis="Omitted saves take no time. The duration of a save is known up to its standard error; in the best "
        "case the steps after a save also become faster.",
        effect=_effect(m, interval) if interval > old_interval else None,
        cost=None if failures is None else _cost(save_seconds, old_interval, interval, failures),
        memory=0,
        risk=f"Low: a failure loses up to {seconds(interval)} of training.",
    )


def _best(save: float, failures: float) -> float:
    """Return Daly's optimal interval in seconds, at least the time of one save."""
    return max(daly(save, failures), save)


def _effect(m: Metrics, interval: float) -> Effect:
    omitted_share = 1 - m[between.checkpoint_interval] / interval
    error = m.get(between.checkpoint_save_uncertainty)
    spread = min(1.0, SAVES_DIFFER if error is None else ERRORS * error)
    saving_seconds = m[step.step_time_mean] * m[between.checkpoint_save_seconds] / m[between.checkpoint_interval]
    """Seconds of saving per step."""
    return in_turn(
        remove("checkpoint_save", shares=(omitted_share * (1 - spread), omitted_share, omitted_share)),
        remove_seconds(*LAUNCHED, seconds=omitted_share * saving_seconds, shares=(0.0, 0.0, spread + WRITING_BEHIND)),
    )


def _cost(save: float, now: float, interval: float, failures: float) -> Triple:
    """Return the share of cost saved, 1 - E(then)/E(now), as low, expected and high.

    The three values are for half, once and twice the declared time between failures, sorted. The restart time
    cancels out.
    """

    def saved(time: float) -> float:
        old_inflation = inflation(now, save, time, restart=0.0)
        return 1.0 if math.isinf(old_inflation) else 1 - inflation(interval, save, time, restart=0.0) / old_inflation

    low, expected, high = sorted(saved(factor * failures) for factor in MTBF_TIMES)
    return low, expected, high
