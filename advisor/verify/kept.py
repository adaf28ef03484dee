"""Keep what was tried on a run next to its recording, in verified.json."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Literal

import msgspec

from advisor import atomic_write
from advisor.judging.calibration import TrialResult
from profiler import ours
from profiler.errors import ProfilerError

FILE = "verified.json"
SCHEMA: Final = "profile-train/verified@1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified(TrialResult):
    """One rule's advice as predicted and as measured on a run."""

    seconds: tuple[float, float] | None = None
    """Seconds per step, before and after."""
    memory: int | None = None
    """Additional bytes of GPU memory at the peak; None if not measured."""
    losses_agree: bool | None = None
    """Whether the losses agree; None if they could not be compared, or may differ by chance."""
    steps: int = 0
    """Number of steps measured in each arm."""
    processes: int = 0
    why: str = ""
    """Why it failed, what the harm is, or how much longer a trial should be."""
    leaves: str = ""
    """The part of the advice that was not tried, worded to follow "without"."""
    applied: bool = False
    """Whether the recording next to it was made with the change."""

    def __post_init__(self) -> None:
        TrialResult.__post_init__(self)  # super() without arguments fails with slots=True
        fit = all(abs(number) < 2**63 for number in (self.steps, self.processes, self.memory or 0))  # in 64-bit columns
        if not fit or (self.seconds is not None and min(self.seconds) <= 0):
            raise ValueError(f"the trial of {self.rule!r} contains impossible values")


@dataclass(frozen=True, slots=True)
class _File:
    schema: Literal["profile-train/verified@1"]
    trials: list[Verified]


def tried(trials: Iterable[Verified]) -> dict[str, Verified]:
    """Return the trials by rule, without changes that the recording was made with: they are part of the step."""
    return {trial.rule: trial for trial in trials if not trial.applied}


def read(folder: Path) -> dict[str, Verified]:
    """Return the trials by rule; empty if nothing was tried.

    Raises:
        ProfilerError: the file cannot be read, or another program wrote it.
    """
    path = folder / FILE
    try:
        trials = msgspec.json.decode(path.read_bytes(), type=_File).trials
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, msgspec.MsgspecError, RecursionError) as error:
        raise ProfilerError(f"{path} cannot be read: {error}.", "Remove it, or verify again.") from None
    return {trial.rule: trial for trial in trials}


def write(folder: Path, trials: dict[str, Verified]) -> None:
    """Write all trials in one atomic move; a later recording into the folder removes the file with its run."""
    content = asdict(_File(SCHEMA, list(trials.values())))
    atomic_write.write(
        folder / FILE, json.dumps(content, indent=2, allow_nan=False, default=lambda member: member.value) + "\n"
    )
    ours.add(folder / FILE)
