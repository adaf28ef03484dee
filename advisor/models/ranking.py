"""The order of advice within an area, by expected gain, confidence and effort."""

from __future__ import annotations

# What a change costs its reader, by the rule's difficulty: an argument, an hour's work, a day's.
EFFORT = {1: 1.0, 2: 2.0, 3: 4.0}

# Trials that a class of confidence counts for. With 3 of them a confidence of 2/3 is the prior Beta(2, 1).
PRIOR_TRIALS = 3


def score(expected: float, confidence: float, difficulty: int) -> float:
    """Return expected share of the step time x confidence / effort.

    Raises:
        ValueError: the confidence is outside 0 to 1, or the difficulty is unknown.
    """
    if not 0 <= confidence <= 1 or difficulty not in EFFORT:
        raise ValueError(f"no confidence of {confidence}, no difficulty {difficulty}")
    return expected * confidence / EFFORT[difficulty]


def updated(confidence: float, hits: int, misses: int) -> float:
    """Return the confidence after trials that confirmed (hits) or refuted (misses) predictions.

    It is the mean of Beta(3c + hits, 3(1-c) + misses): the class decides without trials, the trials decide once there
    are many.

    Raises:
        ValueError: the confidence is outside 0 to 1, or a count is negative.
    """
    if not 0 <= confidence <= 1 or hits < 0 or misses < 0:
        raise ValueError(f"no confidence of {confidence} with {hits} hits and {misses} misses")
    return (PRIOR_TRIALS * confidence + hits) / (PRIOR_TRIALS + hits + misses)
