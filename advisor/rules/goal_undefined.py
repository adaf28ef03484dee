"""Nobody said, or not in full, what the run is for.

A faster step is not the aim but a means: to reach a quality sooner, cheaper, or on less memory. MLPerf compares
trainings by the time to a quality target; deployments by throughput or by a percentile of latency. With a goal the
report ranks by it; without one it takes the time of a step, and leaves memory alone as long as nothing fails.

Wrong when: step time is what you want to know. Then nothing is missing.
"""

from __future__ import annotations

from advisor.metrics.base import Metrics
from advisor.metrics.goals import undeclared_goals
from advisor.metrics.step import step_time_mean
from advisor.rules.base import Advice, Change, Confidence, Evidence, Fact, Rule, Severity, Source, Tier
from advisor.units import seconds

OPTIONS = {
    "goal": "--goal cost",
    "quality": '--quality "val_acc>=0.76"',
    "gpu_price": "--gpu-price 2.5",
}


def when(m: Metrics) -> Evidence | None:
    """If what counts most, the quality that is wanted or, where cost counts, the price of a GPU was not declared,"""
    missing = m[undeclared_goals]
    return Evidence((Fact(undeclared_goals, len(missing), 0, ">"),)) if missing else None


def then(m: Metrics, found: Evidence) -> Advice:
    """then declare it, or read the advice as ranked by step time, for a quality that stays as it is."""
    missing = m[undeclared_goals]
    meanwhile = {
        "goal": f"No goal was declared, so advice is ranked by the time of a step, {seconds(m[step_time_mean])}.",
        "quality": "No quality was declared, so the one that the training reaches must stay as it is.",
        "gpu_price": "No price of a GPU was declared, so gains are not put into money.",
    }
    options = " ".join(OPTIONS[name] for name in missing)
    return Advice(
        then=" ".join(meanwhile[name] for name in missing),
        changes=(
            Change(language="shell", code=f"profile-train report RUN {options}  # beside what you declare already\n"),
        ),
        basis="None: a goal changes the order of advice, not the step.",
        risk="None.",
    )


RULE = Rule(
    title="Declare what the run is for",
    tier=Tier.MODEL,
    when=when,
    then=then,
    confidence=Confidence.HEURISTIC,
    difficulty=1,
    sources=(
        Source(
            "MLCommons: MLPerf Training Rules",
            "https://github.com/mlcommons/training_policies/blob/master/training_rules.adoc",
        ),
        Source(
            "MLCommons: MLPerf Inference Rules",
            "https://github.com/mlcommons/inference_policies/blob/master/inference_rules.adoc",
        ),
    ),
    cap=Severity.INFO,
)
