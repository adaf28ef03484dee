"""How often to save a checkpoint, and what failures cost. Times in one unit throughout, seconds unless said otherwise.

delta is what a save blocks the training for, M the mean time between failures of the whole job, R what a restart takes.
Too rare saves lose work, too frequent ones cost it. Young, "A first order approximation to the optimum checkpoint
interval", CACM 1974; Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps", FGCS 2006.
"""

from __future__ import annotations

import math


def mean_time_between_failures(nodes: int, rate: float) -> float:
    """M = 1 / (nodes x rate) of a job that every node's failure ends; `rate` in failures a node and unit of time."""
    if nodes < 1 or rate <= 0:
        raise ValueError(f"{nodes} nodes at {rate} failures each have no mean time between failures")
    return 1 / (nodes * rate)


def young(save: float, between_failures: float) -> float:
    """tau = sqrt(2 delta M): the work between two saves."""
    _check(save, between_failures)
    return math.sqrt(2 * save * between_failures)


def daly(save: float, between_failures: float) -> float:
    """tau to a higher order; M itself once a save costs twice M or more."""
    _check(save, between_failures)
    if save >= 2 * between_failures:
        return between_failures
    ratio = save / (2 * between_failures)
    return young(save, between_failures) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - save


def inflation(interval: float, save: float, between_failures: float, restart: float) -> float:
    """E = (M/tau) e^(R/M) (e^((tau + delta)/M) - 1): expected wall time over time of useful work (Daly 2006).

    `math.inf` where failures are so frequent that the number has no room in a float.
    """
    _check(save, between_failures)
    if interval <= 0 or restart < 0:
        raise ValueError(f"no interval of {interval} with restarts of {restart}")
    try:
        lost = math.exp(restart / between_failures) * math.expm1((interval + save) / between_failures)
    except OverflowError:
        return math.inf
    return between_failures / interval * lost


def spot_cost(discount: float, inflated: float) -> float:
    """(1 - d) E: cost on interruptible machines at that discount over cost on demand; below 1 it is cheaper."""
    if not 0 <= discount <= 1 or inflated < 1:
        raise ValueError(f"no discount of {discount} on a run inflated by {inflated}")
    return (1 - discount) * inflated


def break_even_discount(inflated: float) -> float:
    """1 - 1/E: the discount at which interruptible machines begin to be cheaper."""
    if inflated < 1:
        raise ValueError(f"failures do not make a run faster: {inflated}")
    return 1 - 1 / inflated


def _check(save: float, between_failures: float) -> None:
    if save <= 0 or between_failures <= 0:
        raise ValueError(f"no save takes {save}, no mean time between failures is {between_failures}")
