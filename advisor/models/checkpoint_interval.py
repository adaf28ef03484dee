"""How often to save a checkpoint, and what failures cost.

All times have the same unit, seconds unless stated otherwise. delta is the time for which a save blocks the
training, M the mean time between failures of the whole job, R the time of a restart. Saving too rarely loses work;
saving too often costs time. Sources: Young, "A first order approximation to the optimum checkpoint interval", CACM
1974; Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps", FGCS 2006.
"""

import math


def young(save: float, between_failures: float) -> float:
    """Return tau = sqrt(2 delta M), the work between two saves.

    Raises:
        ValueError: a time is not positive.
    """
    _check(save, between_failures)
    return math.sqrt(2 * save * between_failures)


def daly(save: float, between_failures: float) -> float:
    """Return tau with higher-order terms; M if a save takes 2 M or longer.

    Raises:
        ValueError: a time is not positive.
    """
    _check(save, between_failures)
    if save >= 2 * between_failures:
        return between_failures
    ratio = save / (2 * between_failures)
    return young(save, between_failures) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - save


def inflation(interval: float, save: float, between_failures: float, restart: float) -> float:
    """Return E = (M/tau) e^(R/M) (e^((tau + delta)/M) - 1), wall time over useful time (Daly 2006).

    This is an expected value. It is `math.inf` if failures are so frequent that it does not fit in a float.

    Raises:
        ValueError: a time is not positive (`restart` may be 0).
    """
    _check(save, between_failures)
    if interval <= 0 or restart < 0:
        raise ValueError(f"no interval of {interval} with restarts of {restart}")
    try:
        relative_wall_time = math.exp(restart / between_failures) * math.expm1((interval + save) / between_failures)
    except OverflowError:
        return math.inf
    return between_failures / interval * relative_wall_time


def spot_cost(discount: float, inflated: float) -> float:
    """Return (1 - d) E, cost on interruptible machines over cost on demand; below 1 they are cheaper.

    Raises:
        ValueError: the discount is outside 0 to 1, or `inflated` is below 1.
    """
    if not 0 <= discount <= 1 or inflated < 1:
        raise ValueError(f"no discount of {discount} on a run inflated by {inflated}")
    return (1 - discount) * inflated


def break_even_discount(inflated: float) -> float:
    """Return 1 - 1/E, the discount above which interruptible machines are cheaper.

    Raises:
        ValueError: `inflated` is below 1.
    """
    if inflated < 1:
        raise ValueError(f"failures do not make a run faster: {inflated}")
    return 1 - 1 / inflated


def _check(save: float, between_failures: float) -> None:
    if save <= 0 or between_failures <= 0:
        raise ValueError(f"a save ({save} s) and the time between failures ({between_failures} s) must be positive")
