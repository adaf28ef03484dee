"""Test whether the changed program trains as the unchanged one did."""

import math
from collections.abc import Sequence
from statistics import fmean

from advisor.stats.equivalence import MAX_LOST, Equivalence, equivalence
from advisor.units import share
from advisor.verify.arm import Arm

Losses = Sequence[float | None]


def likeness(before: Sequence[Arm], after: Sequence[Arm]) -> tuple[bool | None, str]:
    """Return whether the losses of the first process of each arm agree, and how they differ, in a sentence.

    None if they could not be compared, or may differ by chance, as with dropout. Twice the difference between the first
    and the last unchanged process is tolerated.
    """
    number = min(len(arm.losses) for arm in (*before, *after))
    old_losses, new_losses = before[0].losses[:number], after[0].losses[:number]
    if _lost(new_losses) > _lost(old_losses) + MAX_LOST:
        return False, f"{share(_lost(new_losses))} of the losses are not finite."
    try:
        comparison = equivalence(old_losses, new_losses, spread=_spread(old_losses, before[-1].losses[:number]))
    except (ValueError, ArithmeticError):  # too few losses, or some of zero or less
        return None, ""
    if comparison.losses_agree:
        return True, ""
    return (False, _by_how_much(comparison)) if comparison.differs else (None, "")


def _lost(losses: Losses) -> float:
    return losses.count(None) / len(losses) if losses else 0.0


def _spread(losses: Losses, again: Losses) -> float:
    """Return the mean absolute difference of the logs."""
    pairs = [(a, b) for a, b in zip(losses, again, strict=True) if a is not None and b is not None]
    return fmean(abs(math.log(b / a)) for a, b in pairs)


def _by_how_much(found: Equivalence) -> str:
    ratio = math.exp(found.difference)
    return f"The losses are {share(abs(ratio - 1))} {'higher' if ratio > 1 else 'lower'}."
