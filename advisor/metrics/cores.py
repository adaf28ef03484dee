"""Lists of CPU cores, as Linux writes them."""

from __future__ import annotations

MOST_CORES = 1 << 16
"""More than Linux can be built for; a list that says more is damaged."""


def cores(listed: str) -> frozenset[int] | None:
    """Of "0-2,5": 0, 1, 2 and 5. None for what is no such list, or one of more than there can be."""
    found: set[int] = set()
    for part in listed.split(",") if listed else ():
        low, _, high = part.partition("-")
        if not (low.isdecimal() and (high or low).isdecimal()) or int(high or low) >= MOST_CORES:
            return None
        found.update(range(int(low), int(high or low) + 1))
    return frozenset(found)
