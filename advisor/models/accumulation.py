"""How a batch is split into micro-batches."""

import math


def pieces(batch: int, largest: int) -> tuple[int, int]:
    """Return (k, micro-batch) so that k micro-batches of at most `largest` samples hold at least `batch`.

    Raises:
        ValueError: a size is below 1.
    """
    if batch < 1 or largest < 1:
        raise ValueError(f"cannot make {batch} samples out of at most {largest} at once")
    k = math.ceil(batch / largest)
    return k, math.ceil(batch / k)
