"""What the user said the run is for."""

from __future__ import annotations

from dataclasses import fields
from typing import TypeVar

from advisor.metrics.base import Metrics, Missing, Need, metric
from advisor.metrics.gpu import device
from advisor.metrics.settings import data_parallel_size
from advisor.metrics.step import step_time_mean

T = TypeVar("T")

IMPROVEMENT = 0.001
"""Of the best value so far, what a validation must be better by to count as an improvement (assumption)."""


@metric(None, "goals that were declared")
def declared_goals(m: Metrics) -> tuple[str, ...]:
    """Names of the goals that were declared for the training; without a step there is none to have a goal for."""
    m[step_time_mean]
    return tuple(each.name for each in fields(m.goals) if getattr(m.goals, each.name) != each.default)


@metric(None, "goals that matter and were not declared")
def undeclared_goals(m: Metrics) -> tuple[str, ...]:
    """Names of the goals that were not declared though they bear on any training: what counts most, the quality that is
    wanted, and, where cost counts on a GPU, its price. Of others the rules that need them ask themselves.
    """
    m[step_time_mean]
    matter = ["goal", "quality"]
    if m.goals.goal == "cost" and m.get(device) is not None:
        matter.append("gpu_price")
    return tuple(name for name in matter if getattr(m.goals, name) is None)


@metric(None, "samples wanted per update and rank")
def target_per_rank(m: Metrics) -> int | None:
    """The wanted batch over the ranks that have samples of their own; None if none was declared."""
    ranks = m[data_parallel_size]
    return None if m.goals.target_batch is None else m.goals.target_batch // ranks


@metric("s", "declared time between failures")
def time_between_failures(m: Metrics) -> float:
    """Mean time between failures, or interruptions, of the whole job, as it was declared."""
    return _declared(m.goals.mtbf, "How often the job fails", "--mtbf TIME")


@metric("1", "declared discount of interruptible machines")
def spot_discount(m: Metrics) -> float:
    """Share of the price that interruptible machines are cheaper by, as it was declared."""
    return _declared(m.goals.spot_discount, "The discount of interruptible machines", "--spot-discount SHARE")


@metric("1", "declared share of time in the queue")
def queue_share(m: Metrics) -> float:
    """Share of the time for which GPUs are allocated or waited for without training, as it was declared."""
    return _declared(m.goals.queue_share, "How long jobs wait for GPUs", "--queue-share SHARE")


@metric("count", "validations")
def validations(m: Metrics) -> int:
    """Validations whose results were declared."""
    return len(_validation(m))


@metric("count", "validations without improvement")
def stale_validations(m: Metrics) -> int:
    """Validations at the end, none of which was better by a thousandth than the best before them."""
    values = _validation(m)
    best, last = values[0], 0
    for index, value in enumerate(values):
        if value > best + IMPROVEMENT * abs(best):
            best, last = value, index
    return len(values) - 1 - last


def _validation(m: Metrics) -> tuple[float, ...]:
    return _declared(m.goals.validation or None, "The quality after each validation", "--validation FILE")


def _declared(value: T | None, what: str, option: str) -> T:
    if value is None:
        raise Missing(f"{what} was not declared", f"Declare it: profile-train report RUN {option}.", Need.DECLARATION)
    return value
