"""Compare the settings and the environment of two runs."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from advisor.runs.environment import Scalar, environment
from advisor.runs.profile import Profile

MACHINE = ("machine", "software", "gpu")
"""Groups of the environment; the other groups are settings."""

# Line numbers change with every edit of the source, and do not affect training.
LEFT_OUT = ("place",)


@dataclass(frozen=True, slots=True)
class Difference:
    """One fact that differs, by its group; None: unknown or absent in that run."""

    group: str
    name: str
    before: Scalar
    after: Scalar


def differences(before: Profile, after: Profile) -> tuple[tuple[Difference, ...], tuple[Difference, ...]]:
    """Return the differences in settings, and those in the environment."""
    # The first of several groups is compared with the only one of the other run.
    groups = [
        {name.removesuffix(" 0"): facts for name, facts in environment(profile).items()} for profile in (before, after)
    ]
    difference_lists: tuple[list[Difference], list[Difference]] = ([], [])
    for name in dict.fromkeys((*groups[0], *groups[1])):
        is_machine = name.split()[0] in MACHINE
        difference_lists[is_machine].extend(_of_group(name, groups[0].get(name), groups[1].get(name)))
    return tuple(difference_lists[0]), tuple(difference_lists[1])


def _of_group(
    group: str, before: Mapping[str, Scalar] | None, after: Mapping[str, Scalar] | None
) -> Iterator[Difference]:
    if before is None or after is None:  # what only one run has or reports takes one line
        yield Difference(group, "seen", before is not None or None, after is not None or None)
        return
    for name in dict.fromkeys((*before, *after)):
        if name not in LEFT_OUT and before.get(name) != after.get(name):
            yield Difference(group, name, before.get(name), after.get(name))
