"""The order of advice within an area, by expected gain, confidence and effort."""

# What a change costs its reader, by the rule's difficulty: an argument, an hour's work, a day's.
EFFORT = {1: 1.0, 2: 2.0, 3: 4.0}


def score(expected: float, confidence: float, difficulty: int) -> float:
    """Return expected share of the step time x confidence / effort.

    Raises:
        ValueError: the confidence is outside 0 to 1, or the difficulty is unknown.
    """
    if not 0 <= confidence <= 1 or difficulty not in EFFORT:
        raise ValueError(f"no confidence of {confidence}, no difficulty {difficulty}")
    return expected * confidence / EFFORT[difficulty]
