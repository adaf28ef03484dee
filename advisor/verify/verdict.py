"""How a trial of a piece of advice can end."""

from __future__ import annotations

from enum import Enum


class Verdict(Enum):
    """What became of a piece of advice that was tried."""

    CONFIRMED = "confirmed"
    """As predicted."""
    BETTER = "better"
    """More than predicted."""
    PARTIAL = "partial"
    """Less than predicted, but something."""
    REFUTED = "refuted"
    """Nothing."""
    HARMFUL = "harmful"
    """Slower, or one step in ten takes longer than before by more than 5 %, or it trains otherwise."""
    INCONCLUSIVE = "inconclusive"
    """Too noisy to tell."""
    FAILED = "failed"
    """The change could not be made, or the program ended with it."""

    @property
    def is_kept(self) -> bool:
        """The change is worth having."""
        return self in (Verdict.CONFIRMED, Verdict.BETTER, Verdict.PARTIAL)

    @property
    def is_against(self) -> bool:
        """The change is not worth having."""
        return self in (Verdict.REFUTED, Verdict.HARMFUL)
