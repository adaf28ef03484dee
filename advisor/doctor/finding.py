"""What was found of one thing."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class State(Enum):
    """How it stands."""

    OK = "ok"
    WARNING = "warning"
    """Training works; something is slower, or is not measured."""
    FIX = "fix"
    """It does not work as it is."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line."""

    name: str
    state: State
    said: str
    remedy: str = ""
    """What to do, a sentence; nothing where it is ok."""


def ok(name: str, said: str) -> Finding:
    """As it should be."""
    return Finding(name, State.OK, said)


def warning(name: str, said: str, remedy: str = "") -> Finding:
    """It works, but."""
    return Finding(name, State.WARNING, said, remedy)


def fix(name: str, said: str, remedy: str) -> Finding:
    """It does not work."""
    return Finding(name, State.FIX, said, remedy)
