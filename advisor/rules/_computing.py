"""What rules about a part of the computing share: how much of forward and backward it is."""

from __future__ import annotations

from advisor.metrics.base import Metrics
from advisor.metrics.step import phase_seconds
from advisor.models.effects import COMPUTE


def of_computing(m: Metrics, part: float) -> float:
    """A part of the step that lies in forward and backward, as a share of these two."""
    seconds = m[phase_seconds]
    computing = sum(seconds.get(phase, 0.0) for phase in COMPUTE)
    return min(1.0, part * sum(seconds.values()) / computing) if computing > 0 else 0.0
