"""Compare the settings and the environment of two runs."""

from collections.abc import Iterator
from dataclasses import dataclass

from advisor.runs.environment import Group, Row, environment
from advisor.runs.profile import Profile

MACHINE = ("machine", "software", "gpu")
"""Groups of the environment; the other groups are settings."""

# Lines move with every edit of the source, and say nothing of how it trains.
LEFT_OUT = ("place",)


@dataclass(frozen=True, slots=True)
class Difference:
    """One fact that differs, by its group; None: that run does not know it, or has no such thing."""

    group: str
    before: Row | None
    after: Row | None

    @property
    def name(self) -> str:
        """Return the name of the fact."""
        return next(row.name for row in (self.before, self.after) if row is not None)


def differences(before: Profile, after: Profile) -> tuple[tuple[Difference, ...], tuple[Difference, ...]]:
    """Return the differences in settings, and those in the environment."""
    # The first of several is compared with the only one of another run.
    groups = [{group.name.removesuffix(" 0"): group for group in environment(profile)} for profile in (before, after)]
    found: tuple[list[Difference], list[Difference]] = ([], [])
    for name in dict.fromkeys((*groups[0], *groups[1])):
        is_machine = name.split()[0] in MACHINE
        found[is_machine].extend(_of_group(name, groups[0].get(name), groups[1].get(name)))
    return tuple(found[0]), tuple(found[1])


def _of_group(name: str, before: Group | None, after: Group | None) -> Iterator[Difference]:
    if before is None or after is None:  # what only one run has or reports takes one line
        seen = Row("seen", True)
        yield Difference(name, seen if before else None, seen if after else None)
        return
    rows = [{row.name: row for row in group.rows} for group in (before, after)]
    for key in dict.fromkeys((*rows[0], *rows[1])):
        pair = [one if (one := each.get(key)) and one.value is not None else None for each in rows]
        values = [None if row is None else row.value for row in pair]
        if key not in LEFT_OUT and values[0] != values[1]:
            yield Difference(name, pair[0], pair[1])
