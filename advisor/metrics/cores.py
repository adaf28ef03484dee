"""Read lists of CPU cores in the format of Linux."""

MOST_CORES = 1 << 16
"""More cores than Linux can be built for; a list with a larger number is corrupt."""


def cores(listed: str) -> frozenset[int] | None:
    """Return the cores of a list: 0, 1, 2 and 5 for "0-2,5".

    None if the text is not such a list, or names a core beyond `MOST_CORES`.
    """
    found: set[int] = set()
    for part in listed.split(",") if listed else ():
        low, _, high = part.partition("-")
        if not (low.isdecimal() and (high or low).isdecimal()) or int(high or low) >= MOST_CORES:
            return None
        found.update(range(int(low), int(high or low) + 1))
    return frozenset(found)
