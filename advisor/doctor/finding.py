"""The result of a check."""

from dataclasses import dataclass, field
from enum import Enum
from functools import partial


class CheckState(Enum):
    """The state of what was checked."""

    OK = "ok"
    WARNING = "warning"
    """Training works, but something is slower or not measured."""
    FIX = "fix"
    """It does not work until this is fixed."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One line of the check."""

    name: str
    state: CheckState = field(kw_only=True)
    said: str
    remedy: str = ""
    """What to do, in a sentence; empty if it is ok."""


ok = partial(CheckResult, state=CheckState.OK)
warning = partial(CheckResult, state=CheckState.WARNING)
fix = partial(CheckResult, state=CheckState.FIX)
