"""Relate a part of the step to its forward and backward passes."""

from advisor.metrics import Metrics, step
from advisor.models.effects import COMPUTE


def of_computing(m: Metrics, part: float) -> float:
    """Convert a share of the step into a share of forward and backward time, at most 1."""
    seconds = m[step.modeled_phases]
    computing = sum(seconds.get(phase, 0.0) for phase in COMPUTE)
    return min(1.0, part * sum(seconds.values()) / computing) if computing > 0 else 0.0
