"""Evaluation takes a third of the run or more.

Evaluation informs you; it does not train the model. How often it is worth its time depends on how you use the results,
which a recording does not show. The advice therefore names the interval at which evaluation takes a fifth of the run;
the choice is yours. Less validation data, larger batches or fewer metrics save time as well.

Wrong when: each evaluation controls the training (early stopping, a learning rate schedule, the choice of the best
checkpoint), or the recording is so short that it contains more evaluation than the whole run.

Source: Arithmetic on the measured evaluation time
"""

import math

from advisor.metrics import Metrics, Threshold, between
from advisor.models.effects import remove
from advisor.rules._spelling import spelling
from advisor.rules.base import Advice, Area, Confidence, Evidence, Rule, Severity, evidence, measure
from advisor.units import share

RULE = Rule("Evaluate less often", Area.STALLS, Confidence.HEURISTIC, cap=Severity.SUGGEST)

MOST = Threshold(1 / 3, "Below this, most of the run is training, whatever the purpose of the evaluation (assumption).")
MIN_EVALUATIONS = Threshold(2, "A single evaluation has no interval.")

LEFT = 0.2
"""Share of the run that evaluation may take afterwards (assumption)."""

ROUNDING = 1e-6

OMITTED = (0.8, 1.0, 1.0)
"""Share of the time of omitted evaluations that is saved: one that warms up caches makes the next one faster
(assumption).
"""


def when(m: Metrics) -> Evidence | None:
    """If evaluation takes at least a third of the run, and happened at least twice,"""
    return evidence(
        measure(m, between.evaluation_share, ">=", MOST), measure(m, between.evaluations, ">=", MIN_EVALUATIONS)
    )


def then(m: Metrics, found: Evidence) -> Advice:
    """then evaluate less often, so that it takes a fifth of the run, or on less data."""
    evaluation_share = m[between.evaluation_share]
    # (e/k) / (e/k + t) is at most `LEFT`; `evaluation_share` is e / (e + t).
    interval = max(2, math.ceil(evaluation_share / max(1 - evaluation_share, 0.01) * (1 - LEFT) / LEFT - ROUNDING))
    return Advice(
        then=f"Evaluate 1/{interval} as often, or on 1/{interval} of the data: evaluation takes "
        f"{share(evaluation_share)} of the run.",
        changes=spelling(m).evaluate_every(interval),
        basis="80 to 100 % of the time of the omitted evaluations is saved.",
        effect=remove("evaluation", shares=OMITTED, portion=1 - 1 / interval),
        memory=0,
        risk="No effect on training itself, unless evaluation results control it.",
    )
