"""How often checkpoints are saved, and how sure it is what a save takes."""

from __future__ import annotations

import math
from statistics import fmean, stdev

from advisor.metrics.base import Metrics, Missing, metric
from advisor.metrics.between import checkpoint_save_seconds, checkpoint_save_share
from advisor.metrics.settings import primary_rank
from profiler.schema import TAG_CHECKPOINT

FEWEST = 3
"""Saves whose times have a spread to speak of."""


@metric("s", "work between two saves")
def checkpoint_interval(m: Metrics) -> float:
    """Mean seconds of training between two saves: what a save's share leaves of a cycle."""
    share = m[checkpoint_save_share]
    if share <= 0:
        raise Missing("No checkpoint was saved", "Record a run that saves some.")
    return m[checkpoint_save_seconds] * (1 - share) / share


@metric("1", "uncertainty of the time of a save")
def checkpoint_save_uncertainty(m: Metrics) -> float:
    """Standard error of the mean time of a save, over that mean; a lower bound where neighbours were merged."""
    steps = [step for step in m[primary_rank].steps if step.tags & TAG_CHECKPOINT]
    times = [step.checkpoint_save or 0.0 for step in steps]
    if len(times) < FEWEST or fmean(times) <= 0:
        raise Missing(f"Fewer than {FEWEST} saves were timed", "Record a run with more of them.")
    return stdev(times) / math.sqrt(len(times)) / fmean(times)
