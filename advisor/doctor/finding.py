"""The result of a check."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class State(Enum):
    """The state of what was checked."""

    OK = "ok"
    WARNING = "warning"
    """Training works, but something is slower or not measured."""
    FIX = "fix"
    """It does not work as it is."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the check."""

    name: str
    state: State
    said: str
    remedy: str = ""
    """What to do, in a sentence; empty if it is ok."""


def ok(name: str, said: str) -> Finding:
    """Return a finding that all is well."""
    return Finding(name, State.OK, said)


def warning(name: str, said: str, remedy: str = "") -> Finding:
    """Return a finding that it works with a drawback."""
    return Finding(name, State.WARNING, said, remedy)


def fix(name: str, said: str, remedy: str) -> Finding:
    """Return a finding that it does not work."""
    return Finding(name, State.FIX, said, remedy)
