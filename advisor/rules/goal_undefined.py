"""Nobody said what the run is for.

A faster step is not the aim but a means: to reach a quality sooner, cheaper, or on less memory. MLPerf compares
trainings by the time to a quality target; deployments by throughput or by a percentile of latency. With a goal the
report ranks by it; without one it takes the time of a step, and leaves memory alone as long as nothing fails.

Wrong when: step time is what you want to know. Then nothing is missing.
"""

from __future__ import annotations

from advisor.metrics.base import Metrics
from advisor.metrics.goals import declared_goals
from advisor.metrics.step import step_time_mean
from advisor.rules.base import Advice, Change, Confidence, Evidence, Fact, Rule, Severity, Source, Tier
from advisor.units import seconds


def when(m: Metrics) -> Evidence | None:
    """If no goal was declared,"""
    goals = m[declared_goals]
    return None if goals else Evidence((Fact(declared_goals, len(goals), 0, "=="),))


def then(m: Metrics, found: Evidence) -> Advice:
    """then declare one, or read the advice as ranked by step time."""
    return Advice(
        then=f"Advice is ranked by the time of a step, {seconds(m[step_time_mean])}, for no goal was declared.",
        changes=(
            Change(
                language="shell",
                code='profile-train report RUN --goal cost --quality "val_acc>=0.76"  # or memory, latency ...\n',
            ),
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
