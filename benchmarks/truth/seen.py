"""What a profiler, ours or another, said about a run."""

from dataclasses import dataclass, field
from fnmatch import fnmatch


@dataclass(frozen=True, kw_only=True)
class Seen:
    above: tuple[str, ...]
    """IDs of the rules above information, in their order; for a peer, the rules of ours that its advice means."""
    scattered: bool = False
    """Whether step times varied too much to insist on anything: advice is held back to information, in its order."""
    below: tuple[str, ...] = ()
    """IDs of the rules that are information only, in their order."""
    gains: dict[str, tuple[float, float, float]] = field(default_factory=dict)
    """By rule, alone: low, expected and high share of the step time removed."""
    cure: tuple[str, ...] = ()
    """The first advice's numbers, as arguments of the row's program."""
    workers: int | None = None
    """The first advice's number of workers."""
    said: str = ""
    """The first advice in the profiler's own words."""

    @property
    def order(self):
        """Return the rules in order, including those that are held back only because step times scatter."""
        return self.above + self.below if self.scattered else self.above

    @property
    def first(self):
        return self.order[0] if self.order else None


def is_hit(row, seen, number=None):
    """Return whether the row's advice, or the first `number` of it, comes first and in order; for a healthy row,
    whether nothing is above information."""
    wanted = row.order[:number]
    return seen.order[: len(wanted)] == wanted if wanted else not seen.above


def forbidden(row, seen, cores):
    """Return what was said above information and must not be."""
    found = [rule for rule in seen.above if any(fnmatch(rule, pattern) for pattern in row.absent)]
    if row.within_cores and seen.workers is not None and seen.workers > max(1, cores - 1):
        found.append(f"{seen.workers} workers")
    return found
