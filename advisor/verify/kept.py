"""Keep what was tried on a run next to its recording, in verified.json."""

import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from advisor.atomic_write import whole
from advisor.judging.calibration import Tried
from advisor.judging.verdict import Verdict
from advisor.models.effects import Triple
from advisor.verify.judgement import Judged
from profiler import ours
from profiler.errors import ProfilerError

FILE = "verified.json"
SCHEMA = "profile-train/verified@1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """One rule's advice as predicted and as measured, in shares of the step time that go."""

    rule: str
    verdict: Verdict
    predicted: Triple | None
    removed: Triple | None = None
    """Measured share with its 95 % interval; None if nothing could be measured."""
    seconds: tuple[float, float] | None = None
    """Seconds per step, before and after."""
    memory: int | None = None
    """Additional bytes of GPU memory."""
    losses_agree: bool | None = None
    steps: int = 0
    """Number of steps measured in each arm."""
    processes: int = 0
    why: str = ""
    """Why it failed, what the harm is, or how much longer a trial should be."""
    leaves: str = ""
    """What of the advice was not tried, as it follows "without"."""
    applied: bool = False
    """Whether the recording next to it was made with the change."""


def of(rule: str, predicted: Triple | None, found: Judged, leaves: str = "") -> Verified:
    """Return the result of a measured trial of a rule's advice."""
    return Verified(
        rule=rule,
        verdict=found.verdict,
        predicted=predicted,
        removed=found.removed,
        seconds=found.seconds,
        memory=found.memory,
        losses_agree=found.losses_agree,
        steps=found.steps,
        processes=found.processes,
        why=found.why,
        leaves=leaves,
    )


def tried(trials: Iterable[Verified]) -> dict[str, Tried]:
    """Return the trials for the judge, by rule.

    Changes that the recording was made with are left out: they are part of the step already.
    """
    return {
        each.rule: Tried(rule=each.rule, verdict=each.verdict, predicted=each.predicted, removed=each.removed)
        for each in trials
        if not each.applied
    }


def read(folder: Path) -> dict[str, Verified]:
    """Return the trials by rule; empty if nothing was tried.

    Raises:
        ProfilerError: the file cannot be read, or another program wrote it.
    """
    path = folder / FILE
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if found["schema"] != SCHEMA:
            raise ValueError(f"its schema is {found['schema']}")
        trials = [_verified(each) for each in found["trials"]]
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, ArithmeticError, RecursionError) as error:
        raise ProfilerError(f"{path} cannot be read: {error}.", "Remove it, or verify again.") from None
    return {each.rule: each for each in trials}


def write(folder: Path, trials: dict[str, Verified]) -> None:
    """Write all trials in one atomic move; a later recording into the folder takes the file away with its run."""
    text = json.dumps(
        {"schema": SCHEMA, "trials": [{**asdict(each), "verdict": each.verdict.value} for each in trials.values()]},
        indent=2,
        allow_nan=False,
    )
    with whole(folder / FILE) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")
    ours.add(folder / FILE)


def _verified(fields: dict[str, Any]) -> Verified:
    """Return a trial read from a file, rejecting what cannot be shown."""
    predicted, removed, seconds = (_numbers(fields[name]) for name in ("predicted", "removed", "seconds"))
    memory, agree, steps, processes = (fields[name] for name in ("memory", "losses_agree", "steps", "processes"))
    texts = [fields["rule"], fields["why"], fields["leaves"]]
    if (
        any(triple is not None and not (len(triple) == 3 and _rises(triple)) for triple in (predicted, removed))
        or (seconds is not None and not (len(seconds) == 2 and min(seconds) > 0))
        or any(type(number) is not int or abs(number) >= 2**63 for number in (steps, processes, memory or 0))
        or any(flag not in (None, True, False) for flag in (agree, fields["applied"]))
        or any(type(text) is not str for text in texts)
    ):
        raise ValueError(f"the trial of {fields['rule']!r} makes no sense")
    return Verified(
        rule=texts[0],
        verdict=Verdict(fields["verdict"]),
        predicted=predicted,
        removed=removed,
        seconds=seconds,
        memory=memory,
        losses_agree=agree,
        steps=steps,
        processes=processes,
        why=texts[1],
        leaves=texts[2],
        applied=bool(fields["applied"]),
    )


def _numbers(values: list[float] | None) -> Any:
    """Return the numbers, which must be finite."""
    if values is None:
        return None
    numbers = tuple(float(value) for value in values)
    if not all(map(math.isfinite, numbers)):
        raise ValueError("not all of its numbers are finite")
    return numbers


def _rises(values: tuple[float, ...]) -> bool:
    """Return whether the values ascend and no more than all of the time goes."""
    return list(values) == sorted(values) and values[-1] <= 1
