"""TODO: what is slow, in one sentence that ends with a full stop.

TODO: why, and how it shows in the measurements.

Wrong when: TODO: the runs in which this advice would be a false alarm.

Source: TODO: the title of the source, https://example.org
"""

from advisor.metrics import Metrics, Threshold, step
from advisor.models.effects import remove, up_to
from advisor.rules.base import Advice, Area, Confidence, Evidence, Rule, evidence, measure, python
from advisor.units import share

RULE = Rule("TODO: the advice, in the imperative", Area.STALLS, Confidence.HEURISTIC)

MIN_SHARE = Threshold(0.05, "TODO: why this value, or its source.")


def when(m: Metrics) -> Evidence | None:
    """If TODO: at least 5 % of the step goes into it,"""
    return evidence(measure(m, step.other_fraction, ">=", MIN_SHARE))


def then(m: Metrics, found: Evidence) -> Advice:
    """then TODO: the change."""
    return Advice(
        then=f"TODO: the change in this run, with its numbers: {share(m[step.other_fraction])} of the step.",
        changes=(python("# TODO: code to copy"),),
        basis="TODO: how the gain is predicted.",
        effect=remove("other", shares=up_to(1.0)),
        risk="TODO: what else changes.",
    )
