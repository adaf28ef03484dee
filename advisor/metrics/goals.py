"""The goals that the user declared for the run."""

from dataclasses import fields
from typing import TypeVar

from advisor.metrics.base import Metrics, Need, known, metric
from advisor.metrics.gpu import device
from advisor.metrics.settings import data_parallel_size
from advisor.metrics.step import step_time_mean

T = TypeVar("T")

IMPROVEMENT = 0.001
"""Share of the best value that a validation must gain to count as an improvement (assumption)."""


@metric(None, "declared goals")
def declared_goals(m: Metrics) -> tuple[str, ...]:
    """Names of the declared goals; no value if no step was recorded."""
    m[step_time_mean]
    return tuple(field.name for field in fields(m.goals) if getattr(m.goals, field.name) != field.default)


@metric(None, "relevant goals that were not declared")
def undeclared_goals(m: Metrics) -> tuple[str, ...]:
    """Names of the goals that matter for any training and were not declared.

    These are the main goal, the target quality and, if the goal is cost on a GPU, its price. Rules that need other
    goals ask for them.
    """
    m[step_time_mean]
    names = ["goal", "quality"]
    if m.goals.goal == "cost" and m.get(device) is not None:
        names.append("gpu_price")
    return tuple(name for name in names if getattr(m.goals, name) is None)


@metric(None, "target samples per update and rank")
def target_per_rank(m: Metrics) -> int | None:
    """The declared batch size per data-parallel rank; None if none was declared."""
    ranks = m[data_parallel_size]
    return None if m.goals.target_batch is None else m.goals.target_batch // ranks


@metric("s", "declared time between failures")
def time_between_failures(m: Metrics) -> float:
    """Declared mean seconds between failures or interruptions of the whole job."""
    return _declared(m.goals.mtbf, "The failure rate of the job", "--mtbf TIME")


@metric("1", "declared discount of spot instances")
def spot_discount(m: Metrics) -> float:
    """Declared discount of spot instances, as a share of the price."""
    return _declared(m.goals.spot_discount, "The discount of spot instances", "--spot-discount SHARE")


@metric("1", "declared share of time in the queue")
def queue_share(m: Metrics) -> float:
    """Declared share of GPU time that is spent waiting, or allocated without training."""
    return _declared(m.goals.queue_share, "The time that jobs wait for GPUs", "--queue-share SHARE")


@metric("count", "validations")
def validations(m: Metrics) -> int:
    """Number of declared validation results."""
    return len(_validation(m))


@metric("count", "validations without improvement")
def stale_validations(m: Metrics) -> int:
    """Number of validations since the best value last improved by at least a thousandth."""
    values = _validation(m)
    best, last = values[0], 0
    for index, value in enumerate(values):
        if value > best + IMPROVEMENT * abs(best):
            best, last = value, index
    return len(values) - 1 - last


def _validation(m: Metrics) -> tuple[float, ...]:
    return _declared(m.goals.validation or None, "The quality after each validation", "--validation FILE")


def _declared(value: T | None, what: str, option: str) -> T:
    remedy = f"Declare it: profile-train report RUN {option}."
    return known(value, f"{what} was not declared", remedy, Need.DECLARATION)
