"""The result of a check."""

from dataclasses import dataclass
from enum import Enum


class CheckState(Enum):
    """The state of what was checked."""

    OK = "ok"
    WARNING = "warning"
    """Training works, but something is slower or not measured."""
    FIX = "fix"
    """It does not work as it is."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One line of the check."""

    name: str
    state: CheckState
    said: str
    remedy: str = ""
    """What to do, in a sentence; empty if it is ok."""


def ok(name: str, said: str) -> CheckResult:
    """Return a finding that all is well."""
    return CheckResult(name, CheckState.OK, said)


def warning(name: str, said: str, remedy: str = "") -> CheckResult:
    """Return a finding that it works with a drawback."""
    return CheckResult(name, CheckState.WARNING, said, remedy)


def fix(name: str, said: str, remedy: str) -> CheckResult:
    """Return a finding that it does not work."""
    return CheckResult(name, CheckState.FIX, said, remedy)
