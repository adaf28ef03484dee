"""What a profiler said of a run, whichever profiler it is."""

from dataclasses import dataclass, field
from fnmatch import fnmatch


@dataclass(frozen=True, kw_only=True)
class Seen:
    above: tuple[str, ...]
    """Ids of the rules above information, in their order; a peer's, as the rules of ours that they come to."""
    scattered: bool = False
    """The step times varied too much to insist on anything: advice is held back to information, in its order."""
    below: tuple[str, ...] = ()
    """Ids of the rules that are information only, in their order."""
    gains: dict[str, tuple[float, float, float]] = field(default_factory=dict)
    """Of each rule alone: low, expected and high share of the step time removed."""
    cure: tuple[str, ...] = ()
    """The first advice's numbers, as arguments of the row's program."""
    workers: int | None = None
    """The first advice's number of them."""
    said: str = ""
    """In its own words."""

    @property
    def order(self):
        """Rules as they come, with those that only the scatter holds back."""
        return self.above + self.below if self.scattered else self.above

    @property
    def first(self):
        return self.order[0] if self.order else None


def is_hit(row, seen, number=None):
    """What should come first does, in its order, or the first `number` of it; of a healthy row nothing is above
    information."""
    wanted = row.order[:number]
    return seen.order[: len(wanted)] == wanted if wanted else not seen.above


def forbidden(row, seen, cores):
    """What was said above information and must not be."""
    found = [rule for rule in seen.above if any(fnmatch(rule, pattern) for pattern in row.absent)]
    if row.within_cores and seen.workers is not None and seen.workers > max(1, cores - 1):
        found.append(f"{seen.workers} workers")
    return found
