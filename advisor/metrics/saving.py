"""The interval between checkpoints, and the uncertainty of the time to save one."""

import math
from statistics import fmean, stdev

from advisor.metrics.base import Metrics, Missing, metric
from advisor.metrics.between import checkpoint_save_seconds, checkpoint_save_share
from advisor.metrics.settings import primary_rank
from profiler.schema import TAG_CHECKPOINT

FEWEST = 3
"""Minimum number of saves to compute a spread of their times."""


@metric("s", "training time between two checkpoints")
def checkpoint_interval(m: Metrics) -> float:
    """Mean seconds of training between two saves, without the saves themselves."""
    share = m[checkpoint_save_share]
    if share <= 0:
        raise Missing("No checkpoint was saved", "Record a run that saves checkpoints.")
    return m[checkpoint_save_seconds] * (1 - share) / share


@metric("1", "uncertainty of the time to save a checkpoint")
def checkpoint_save_uncertainty(m: Metrics) -> float:
    """Standard error of the mean save time, divided by that mean. For merged steps it is a lower bound."""
    steps = [step for step in m[primary_rank].steps if step.tags & TAG_CHECKPOINT]
    times = [step.checkpoint_save or 0.0 for step in steps]
    if len(times) < FEWEST or fmean(times) <= 0:
        raise Missing(f"Fewer than {FEWEST} saves were timed", "Record a run with more of them.")
    return stdev(times) / math.sqrt(len(times)) / fmean(times)
