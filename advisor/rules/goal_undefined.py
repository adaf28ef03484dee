"""The goal of the run was not declared, or not completely.

A faster step is a means, not the aim: to reach a quality sooner, cheaper, or with less memory. MLPerf compares
trainings by the time to a quality target, and deployments by throughput or a percentile of latency. With a goal, the
report ranks its advice by it. Without one, it ranks by step time, and ignores memory as long as nothing fails.

Wrong when: step time is what you want to know; nothing is missing then.
"""

from __future__ import annotations

from advisor.metrics.base import Metrics
from advisor.metrics.goals import undeclared_goals
from advisor.metrics.step import step_time_mean
from advisor.rules.base import Advice, Area, Change, Confidence, Evidence, Measurement, Rule, Severity, Source
from advisor.units import seconds

OPTIONS = {
    "goal": "--goal cost",
    "quality": '--quality "val_acc>=0.76"',
    "gpu_price": "--gpu-price 2.5",
}


def when(m: Metrics) -> Evidence | None:
    """If the main goal, the target quality or, if the goal is cost, the price of a GPU was not declared,"""
    missing = m[undeclared_goals]
    return Evidence((Measurement(undeclared_goals, len(missing), 0, ">"),)) if missing else None


def then(m: Metrics, found: Evidence) -> Advice:
    """then declare it, or read the advice as ranked by step time at unchanged quality."""
    missing = m[undeclared_goals]
    meanwhile = {
        "goal": f"No goal was declared, so advice is ranked by step time, {seconds(m[step_time_mean])}.",
        "quality": "No quality was declared, so the current training quality must be kept.",
        "gpu_price": "No GPU price was declared, so gains are not converted to money.",
    }
    options = " ".join(OPTIONS[name] for name in missing)
    return Advice(
        then=" ".join(meanwhile[name] for name in missing),
        changes=(Change(language="shell", code=f"profile-train report RUN {options}\n"),),
        basis="None: a goal changes the order of advice, not the step.",
        risk="None.",
    )


RULE = Rule(
    title="Declare the goal of the run",
    area=Area.MODEL,
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
