"""The goal of the run was not declared, or not completely.

A faster step is not the final goal: you want to reach a quality sooner, cheaper, or with less memory. MLPerf compares
training by the time to a quality target, and inference by throughput or a latency percentile. If you declare a goal,
the report ranks its advice by that goal. Otherwise it ranks by step time, and ignores memory as long as nothing fails.

Wrong when: you only want to know the step time; then nothing is missing.

Source: MLCommons: MLPerf Training Rules, https://github.com/mlcommons/training_policies/blob/master/training_rules.adoc
Source: MLCommons: MLPerf Inference Rules, https://github.com/mlcommons/inference_policies/blob/master/inference_rules.adoc
"""

from advisor.metrics import Metrics, goals, step
from advisor.rules.base import Advice, Area, Confidence, Evidence, Measurement, Rule, Severity, bash
from advisor.units import seconds

RULE = Rule("Declare the goal of the run", Area.MODEL, Confidence.HEURISTIC, cap=Severity.INFO)

OPTIONS = {"goal": "--goal cost", "quality": '--quality "val_acc>=0.76"', "gpu_price": "--gpu-price 2.5"}


def when(m: Metrics) -> Evidence | None:
    """If the main goal or the target quality was not declared, or the goal is cost and the price of a GPU was not
    declared,
    """
    undeclared_goals = m[goals.undeclared_goals]
    return Evidence((Measurement(goals.undeclared_goals, len(undeclared_goals), 0, ">"),)) if undeclared_goals else None


def then(m: Metrics, found: Evidence) -> Advice:
    """then declare it, or read the advice as ranked by step time at unchanged quality."""
    undeclared_goals = m[goals.undeclared_goals]
    sentences = {
        "goal": "No goal was declared, so advice is ranked by the saved step time (a step takes "
        f"{seconds(m[step.step_time_mean])}).",
        "quality": "No quality was declared, so the quality of the training must not change.",
        "gpu_price": "No GPU price was declared, so gains are not converted to money.",
    }
    options = " ".join(OPTIONS[name] for name in undeclared_goals)
    return Advice(
        then=" ".join(sentences[name] for name in undeclared_goals),
        changes=(bash(f"profile-train report RUN {options}\n"),),
        basis="No gain: a goal changes the order of advice, not the step.",
        risk="None.",
    )
