"""Medians and their intervals."""

import random
import statistics

LEAST_VALUES = 3
"""Fewest values for a meaningful interval."""


def interval(groups, draws=2000):
    """Return (median, low, high) of all values: a 95 % bootstrap interval. Groups are drawn first, then values within
    each group, since processes of one program differ by where their memory happens to lie."""
    chance = random.Random(0)
    medians = []
    for _ in range(draws):
        drawn = chance.choices(groups, k=len(groups))
        medians.append(statistics.median(v for group in drawn for v in chance.choices(group, k=len(group))))
    medians.sort()
    middle = statistics.median(value for group in groups for value in group)
    return middle, medians[int(draws * 0.025)], medians[int(draws * 0.975)]


def verdict(groups, low, high, bar):
    """Return `ok` or `above` if the whole interval is on that side of the bar, else `unclear`."""
    if sum(map(len, groups)) < LEAST_VALUES:
        return "unclear"
    return "ok" if high <= bar else "above" if low > bar else "unclear"
