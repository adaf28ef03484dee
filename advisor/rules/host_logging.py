"""Logging and metrics take a large part of every step.

Work outside the loader, the model and the optimizer (histograms, metrics, formatting, writing, flushing) delays the
next forward pass, and often makes the GPU wait for the host as well. Logging only every k-th step gives nearly the same
information.

The phase `other` also contains work that is not logging: Python overhead of a small model, an expensive loss, a
simulator. So the rule requires evidence of writing. Either log handlers and fsync take more time than logging may cost,
or the program writes at every step and does more other work than a plain training loop over a DataLoader.

A trial logs only at every k-th step. At the other steps it skips log handlers, TensorBoard, wandb, prints, and
functions that the loop calls at every step, that write, and that return nothing. You must change by hand what the loop
itself computes and writes, such as reading the loss before a print. `--apply` with a tuned.toml does not skip such
functions and prints, because you may need their output.

Wrong when: you need the log of every step, or the other work is not logging: a simulator, a search or a loss outside
the model that prints one progress line per step.

Source: PyTorch Performance Tuning Guide, https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html
"""

import math

from advisor.metrics import Metrics, Threshold, host, step
from advisor.models.effects import Triple
from advisor.models.state import Scenario, State
from advisor.rules._spelling import spelling
from advisor.rules.base import Advice, Area, Confidence, Evidence, Intervention, Rule, Safety, evidence, measure
from advisor.units import seconds, share

RULE = Rule("Log less often", Area.STALLS, Confidence.EMPIRICAL)

MIN_OTHER = Threshold(
    0.05, "A plain loop spends less than this on the rest: zeroing gradients, the loss, Python itself."
)

BUDGET = Threshold(0.01, "Share of the step that logging may take; the advised interval reduces logging to it.")

MIN_OUTPUT = Threshold(0.2e-3, "Seconds of writing per step; less than this exceeds the budget only in a tiny step.")

MIN_WAIT = Threshold(
    0.05, "Above this share, waiting for data is a separate problem, and logging is compared with the rest of the step."
)

LARGE_OTHER = Threshold(0.25, "If writing was not timed: a share of other work that no plain training loop reaches.")

LARGE_OTHER_SECONDS = Threshold(
    2e-3, "The same limit in seconds, because Python alone can take that share of a tiny step."
)

EVERY_STEP = Threshold(
    0.9, "If writing was not timed: a write in nearly every step means that the program logs at every step."
)

# Share of the work leading up to the log that is done for the log. All of it in a program that writes histograms of
# every parameter: 64 % of its step led up to the log, and 63 to 67 % was saved; the rest of the step also gains from
# caches. None of it if the program averages its weights before a log line. The low gain is half (assumption).
LEADING_UP = (0.5, 1.0, 1.1)

# The same share of all other work beyond that of a plain loop, if the work leading up to the log is unknown: none to
# all.
FOR_THE_LOG = (0.0, 0.5, 1.0)


def when(m: Metrics) -> Evidence | None:
    """If at least 5 % of the step is neither data, model nor optimizer, and the program either writes for at least 1 %
    of the step (without data wait), or uses a DataLoader, writes at every step, and spends at least 25 % of the step on
    that other work,
    """
    other_share, step_time = m[step.other_fraction], m[step.step_time_mean]
    if other_share < m[MIN_OTHER]:
        return None
    output_share = m[host.output_share]
    budget = m[BUDGET] * _own(m)
    if output_share >= budget and output_share * step_time >= m[MIN_OUTPUT]:
        return evidence(measure(m, step.other_fraction, ">=", MIN_OTHER), measure(m, host.output_share, ">=", budget))
    if other_share < m[LARGE_OTHER] or other_share * step_time < m[LARGE_OTHER_SECONDS]:
        return None
    # Without a DataLoader, the other work is the data: a simulator, a replay buffer, or the program's own loader.
    if not m[step.batches_per_step]:
        return None
    return evidence(
        measure(m, step.other_fraction, ">=", LARGE_OTHER), measure(m, host.writes_per_step, ">=", EVERY_STEP)
    )


def then(m: Metrics, found: Evidence) -> Advice:
    """then log every k-th step, with k such that logging costs 1 %."""
    (low, expected, high), measured_text = _beyond_writing(m)
    writing_share, step_time, own_share = m[host.output_share], m[step.step_time_mean], _own(m)
    # k = ceil(cost / (1 % of the step without that cost and without waiting for data))
    cost = min((writing_share + max(_excess(m), expected)) / own_share, 0.99) if own_share > 0 else 0.99
    interval = max(2, math.ceil(cost / (m[BUDGET] * (1 - cost))))

    def effect(state: State, scenario: Scenario) -> State:
        return state.without(
            "other", (1 - 1 / interval) * (writing_share + scenario.of((low, expected, high))) * step_time
        )

    # A progress bar also writes at every step, and costs nothing: predict no gain unless writing was timed.
    is_timed = any(fact.metric is host.output_share for fact in found.facts)
    return Advice(
        then=f"Compute and write the log every {interval} steps: {share(m[step.other_fraction])} of the step "
        f"({seconds(m[step.other_fraction] * step_time)}) is not data, model or optimizer, and {measured_text}.",
        changes=spelling(m).log_every(interval),
        basis=f"1 - 1/{interval} of all writing is saved, and the same share of the time between the end of the "
        "training work and the first line: half of that time, all of it, or all of it plus the rest of `other` beyond "
        "5 % of the step. If writing was not timed: none, half or all of the rest of `other`.",
        effect=effect if is_timed else None,
        memory=0,
        intervention=Intervention(
            name="logging",
            settings={"every": interval},
            safety=Safety.EXACT,
            leaves="what the training loop itself computes for the log",
        ),
        risk="No effect on training: the log has fewer points. A crash loses unwritten lines.",
    )


def _own(m: Metrics) -> float:
    """Return the share of the step left once waiting for data is fixed; logging is compared with this."""
    wait = m.get(step.data_wait_fraction) or 0.0
    return 1.0 - wait if wait >= m[MIN_WAIT] else 1.0


def _excess(m: Metrics) -> float:
    """Return the share of the step in `other` beyond a plain loop's share and the writing itself."""
    return max(0.0, m[step.other_fraction] - m[MIN_OTHER] - m[host.output_share])


def _beyond_writing(m: Metrics) -> tuple[Triple, str]:
    """Return the shares of the step spent on the log in addition to writing it, and a text on what was measured.

    Without a DataLoader, nothing counts as leading up to a log line: it may be the data, as in a simulator.
    """
    writing_share, excess = m[host.output_share], _excess(m)
    leading_up_share = m.get(host.leading_up_share) if m.get(step.batches_per_step) else None
    if leading_up_share is None:
        low, expected, high = (excess * fraction for fraction in FOR_THE_LOG)
        measured_text = f"log handlers and fsync alone take {share(writing_share)}"
    else:
        low, expected, high = (leading_up_share * fraction for fraction in LEADING_UP)
        high = max(high, excess)
        measured_text = (
            f"log handlers, fsync and the work that leads up to them take {share(writing_share + leading_up_share)}"
        )
    if not writing_share:
        measured_text = "the program writes at every step; the time for logging was not measured"
    return (low, expected, high), measured_text
