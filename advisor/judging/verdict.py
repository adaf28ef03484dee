"""Define how a trial of a piece of advice can end."""

from enum import Enum


class Verdict(Enum):
    """The outcome of a piece of advice that was tried."""

    CONFIRMED = "confirmed"
    """As predicted."""
    BETTER = "better"
    """More than predicted."""
    PARTIAL = "partial"
    """Less than predicted, but something."""
    REFUTED = "refuted"
    """No gain."""
    HARMFUL = "harmful"
    """Slower, or one step in ten takes over 5 % longer than before, or the losses differ."""
    INCONCLUSIVE = "inconclusive"
    """Too noisy to decide."""
    FAILED = "failed"
    """The change could not be made, or the program failed with it."""

    @property
    def is_kept(self) -> bool:
        """Return whether the change is worth keeping."""
        return self in (Verdict.CONFIRMED, Verdict.BETTER, Verdict.PARTIAL)

    @property
    def is_against(self) -> bool:
        """Return whether the change is not worth having."""
        return self in (Verdict.REFUTED, Verdict.HARMFUL)
