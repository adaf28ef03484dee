"""Logging and metrics take a large part of every step.

Work outside the loader, the model and the optimizer (histograms, metrics, formatting, writing, flushing) delays the
next forward pass, and on a GPU often makes the GPU wait for the host as well. Done at every k-th step it gives the
same information.

A program may do more than train: a small model's Python overhead, an expensive loss or a simulator are part of
`other`, too. So the rule requires evidence of writing: time in log handlers or fsync that exceeds what logging may
cost, or a write at every step together with more other work than a plain training loop over a DataLoader has.

A trial skips, at all but every k-th step, calls to log handlers, TensorBoard and wandb, prints, and functions that
the loop calls at every step, that write, and that return nothing, including all they compute. What the loop itself
computes and writes, such as the loss that it reads before it prints, and files that it writes must be changed by
hand. `--apply` a tuned.toml leaves such functions and prints alone, because what they write may be needed.

Wrong when: the log of every step is the purpose of the run, or the other work is not logging: a simulator, a search, a
loss outside the model, with one progress line per step.
"""

from __future__ import annotations

import math

from advisor.metrics.base import Metrics, Threshold
from advisor.metrics.host import leading_up_share, output_share, writes_per_step
from advisor.metrics.step import batches_per_step, data_wait_fraction, other_fraction, step_time_mean
from advisor.models.effects import Triple
from advisor.models.state import Effect, Scenario, State
from advisor.rules._spelling import spelling
from advisor.rules.base import Advice, Area, Confidence, Evidence, Intervention, Measurement, Rule, Safety, Source
from advisor.units import seconds, share

MIN_OTHER = Threshold(0.05, "Share of a plain loop's remainder: zeroing gradients, the loss, Python itself.")

BUDGET = Threshold(0.01, "Budget for logging; the advised interval brings logging back to it.")

MIN_OUTPUT = Threshold(0.2e-3, "Seconds of writing per step; below this, only a tiny step exceeds the budget.")

MIN_WAIT = Threshold(
    0.05, "From this share on, waiting for data is a separate fault, and logging is compared with the rest of the step."
)

LARGE_OTHER = Threshold(
    0.25, "Without timed writing: a share of the step that no plain training loop's remainder reaches."
)

LARGE_OTHER_SECONDS = Threshold(2e-3, "The same in seconds, because Python alone can take that share of a tiny step.")

EVERY_STEP = Threshold(0.9, "Without timed writing: a write in nearly every step indicates a log without an interval.")

# How much of what leads up to the log is for the log. All of it, where histograms of every parameter were written and
# 64 % of the step led up to it: 63 to 67 % went, and the rest of a step gains from the caches. A moving average of the
# weights before a log line is none of it (assumption: half).
LEADING_UP = (0.5, 1.0, 1.1)

# Where that is not known: from none to all of the remainder beyond a plain loop's.
FOR_THE_LOG = (0.0, 0.5, 1.0)


def when(m: Metrics) -> Evidence | None:
    """If at least 5 % of the step is neither data, model nor optimizer, and the program writes: for at least 1 % of
    the step without its data wait, or, fed by a DataLoader, at every step while that other work takes at least 25 % of
    the step,
    """
    other, step = m[other_fraction], m[step_time_mean]
    if other < m[MIN_OTHER]:
        return None
    output = m[output_share]
    budget = m[BUDGET] * _own(m)
    if output >= budget and output * step >= m[MIN_OUTPUT]:
        return Evidence((Measurement(other_fraction, other, m[MIN_OTHER]), Measurement(output_share, output, budget)))
    if other < m[LARGE_OTHER] or other * step < m[LARGE_OTHER_SECONDS]:
        return None
    # Without a DataLoader the other work is the data: a simulator, a replay buffer, a loader of one's own.
    if not m[batches_per_step] or m[writes_per_step] < m[EVERY_STEP]:
        return None
    return Evidence(
        (
            Measurement(other_fraction, other, m[LARGE_OTHER]),
            Measurement(writes_per_step, m[writes_per_step], m[EVERY_STEP]),
        )
    )


def then(m: Metrics, found: Evidence) -> Advice:
    """then log every k-th step, with k such that logging costs 1 %."""
    every = _cadence(m)
    return Advice(
        then=f"Compute and write the log every {every} steps: {share(m[other_fraction])} of the step "
        f"({seconds(m[other_fraction] * m[step_time_mean])}) is not data, model or optimizer, {_of_it(m)}.",
        changes=spelling(m).log_every(every),
        basis=f"1 - 1/{every} of all writing goes away, and the same share of the time before it, from the end of "
        "the training work to the first line: half of it, all, or all plus the rest of `other` beyond 5 % "
        "of the step. If that was not timed: none, half or all of the rest of `other`.",
        effect=_effect(m[output_share] * m[step_time_mean], _for_the_log(m), 1 - 1 / every)
        if _is_timed(found)
        else None,  # a progress bar writes at every step, too, and costs nothing
        memory=0,
        intervention=Intervention(
            name="logging",
            settings={"every": every},
            safety=Safety.EXACT,
            leaves="what the training loop itself computes for the log",
        ),
        risk="No effect on training: the log has fewer points. A crash loses unwritten lines.",
    )


def _own(m: Metrics) -> float:
    """Return the share of the step left once waiting for data is fixed; logging is compared with this."""
    wait = m.get(data_wait_fraction) or 0.0
    return 1.0 - wait if wait >= m[MIN_WAIT] else 1.0


def _is_timed(found: Evidence) -> bool:
    return any(fact.metric is output_share for fact in found.facts)


def _leading_up(m: Metrics) -> float | None:
    """Return the share of the step that leads up to log output; None if it was not timed.

    Also None without a DataLoader, because the work before a log line may then be the data, as in a simulator.
    """
    return m.get(leading_up_share) if m.get(batches_per_step) else None


def _of_it(m: Metrics) -> str:
    leading_up = _leading_up(m)
    if not m[output_share]:
        return "and the program writes at every step; the time for logging was not measured"
    if leading_up is None:
        return f"and log handlers and fsync alone take {share(m[output_share])}"
    return f"and log handlers, fsync and the work that leads up to them take {share(m[output_share] + leading_up)}"


def _excess(m: Metrics) -> float:
    """Return the share of the step in `other` beyond that of a plain loop and the writing itself."""
    return max(0.0, m[other_fraction] - m[MIN_OTHER] - m[output_share])


def _shares(m: Metrics) -> Triple:
    """Return the shares of the step (low, expected, high) spent on the log in addition to writing it."""
    excess, leading_up = _excess(m), _leading_up(m)
    if leading_up is None:
        low, expected, high = (excess * part for part in FOR_THE_LOG)
    else:
        low, expected, high = (leading_up * part for part in LEADING_UP)
        high = max(high, excess)
    return low, expected, high


def _for_the_log(m: Metrics) -> Triple:
    """Return the seconds per step (low, expected, high) spent on the log in addition to writing it."""
    low, expected, high = (part * m[step_time_mean] for part in _shares(m))
    return low, expected, high


def _cadence(m: Metrics) -> int:
    """Return the number of steps per log entry, at least 2.

    k = ceil(cost / (1 % of the step without that cost and without waiting for data)).
    """
    own = _own(m)
    cost = min((m[output_share] + max(_excess(m), _shares(m)[1])) / own, 0.99) if own > 0 else 0.99
    return max(2, math.ceil(cost / (m[BUDGET] * (1 - cost))))


def _effect(writing: float, rest: Triple, skipped: float) -> Effect:
    def effect(state: State, scenario: Scenario) -> State:
        return state.without("other", skipped * (writing + scenario.of(rest)))

    return effect


RULE = Rule(
    title="Log less often",
    area=Area.STALLS,
    when=when,
    then=then,
    confidence=Confidence.EMPIRICAL,
    difficulty=1,
    sources=(
        Source(
            "PyTorch Performance Tuning Guide", "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html"
        ),
    ),
)
