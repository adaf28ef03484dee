"""Describe the outcome of advice that was tried, in words and as two bands on one scale."""

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
class Band:
    """An interval, in percent of the scale's width."""

    name: str
    left: float
    width: float
    tick: float
    """The most likely value in it."""


@dataclass(frozen=True, slots=True)
class Bands:
    """Intervals on a common scale, and the place of zero."""

    zero: float
    bands: tuple[Band, ...]


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


def bands(tried: Verified) -> Bands | None:
    """Return predicted and measured shares of the step time; None if one of them is not known."""
    if tried.predicted is None or tried.removed is None:
        return None
    least = max(-1.0, min(0.0, tried.predicted[0], tried.removed[0]))
    most = max(1.0 if least == 0.0 else 0.0, tried.predicted[2], tried.removed[2])

    def place(value: float) -> float:
        return round(100 * (min(max(value, least), most) - least) / (most - least), 2)

    named = (("predicted", tried.predicted), ("measured", tried.removed))
    return Bands(
        place(0.0),
        tuple(Band(name, place(low), place(high) - place(low), place(middle)) for name, (low, middle, high) in named),
    )


def change(removed: Triple) -> str:
    """Return an interval of removed shares as "51 to 61% less", "3 to 5% more" or "2% more to 9% less"."""
    low, _, high = removed
    if low >= 0:
        return f"{span(low, high)} less"
    if high <= 0:
        return f"{span(-high, -low)} more"
    return f"{share(-low)} more to {share(high)} less"


def _bounds(removed: Triple, direction: str) -> str:
    """Return the same without the word for the direction, if that has been said already."""
    return change(removed).removesuffix(f" {direction}") if removed[0] * removed[2] >= 0 else change(removed)


def _details(tried: Verified) -> Iterator[str]:
    yield f"{tried.processes} runs and {tried.steps:,} steps each way."
    if tried.losses_agree is not None:
        agree = "agree" if tried.losses_agree else "differ"
        yield f"The losses of the first epoch {agree}."
    if tried.memory:
        yield f"GPU memory at the peak: {size(abs(tried.memory))} {'more' if tried.memory > 0 else 'less'}."
    if tried.leaves:
        yield f"Tried without {tried.leaves}."
