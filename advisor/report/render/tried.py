"""Describe the outcome of advice that was tried, in words and as two intervals on one scale."""

from collections.abc import Iterator
from dataclasses import dataclass

from advisor.judging.verdict import Verdict
from advisor.models.effects import Triple
from advisor.units import share, size, span
from advisor.verify.kept import Verified

WORDS = {
    Verdict.CONFIRMED: "Confirmed",
    Verdict.BETTER: "Better than predicted",
    Verdict.PARTIAL: "Some gain, but less than predicted",
    Verdict.REFUTED: "No gain here",
    Verdict.HARMFUL: "Harmful here",
    Verdict.INCONCLUSIVE: "Too noisy to tell",
    Verdict.FAILED: "No verdict",
}


@dataclass(frozen=True, slots=True)
class Scale:
    """A map from a share of the step time to a place, in percent of the scale's width."""

    least: float
    most: float

    def __call__(self, value: float) -> float:
        """Return the place of a share; for a share beyond the scale, the end of the scale."""
        return round(100 * (min(max(value, self.least), self.most) - self.least) / (self.most - self.least), 2)


def outcome(tried: Verified) -> str:
    """Return the outcome as "Confirmed: 56% less step time measured (51 to 61%), 50 to 54% predicted."."""
    word = WORDS[tried.verdict]
    if tried.removed is None:
        return f"{word}. {tried.why}".strip()
    _, estimate, _ = tried.removed
    direction = "less" if estimate >= 0 else "more"
    measured = f"{share(abs(estimate))} {direction} step time measured ({_bounds(tried.removed, direction)})"
    promise = f", {_bounds(tried.predicted, direction)} predicted" if tried.predicted else ""
    return f"{word}: {measured}{promise}. {tried.why}".strip()


def details(tried: Verified) -> str:
    """Return the basis of the measurement and other effects, in sentences; empty if it failed."""
    if tried.removed is None:
        return ""
    return " ".join(_details(tried))


def scale(tried: Verified) -> Scale | None:
    """Return a scale for the predicted and the measured share of the step time; None if one of them is not known."""
    if tried.predicted is None or tried.removed is None:
        return None
    least = max(-1.0, min(0.0, tried.predicted[0], tried.removed[0]))
    return Scale(least, max(1.0 if least == 0.0 else 0.0, tried.predicted[2], tried.removed[2]))


def change(removed: Triple) -> str:
    """Return an interval of removed shares as "51 to 61% less", "3 to 5% more" or "2% more to 9% less"."""
    low, _, high = removed
    if low >= 0:
        return f"{span(low, high)} less"
    if high <= 0:
        return f"{span(-high, -low)} more"
    return f"{share(-low)} more to {share(high)} less"


def _bounds(removed: Triple, direction: str) -> str:
    """Return the same as `change`, without the direction if it is `direction`."""
    return change(removed).removesuffix(f" {direction}") if removed[0] * removed[2] >= 0 else change(removed)


def _details(tried: Verified) -> Iterator[str]:
    yield f"{tried.processes} runs and {tried.steps:,} steps each way."
    if tried.losses_agree is not None:
        verb = "agree" if tried.losses_agree else "differ"
        yield f"The losses of the first epoch {verb}."
    if tried.memory:
        yield f"GPU memory at the peak: {size(abs(tried.memory))} {'more' if tried.memory > 0 else 'less'}."
    if tried.leaves:
        yield f"Tried without {tried.leaves}."
