"""What was tried on a run, beside its recording: verified.json."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from advisor.models.effects import Triple
from advisor.verify.judgement import Judged, Verdict
from profiler.errors import ProfilerError

FILE = "verified.json"
SCHEMA = "profile-train/verified@1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """One rule's advice, as predicted and as measured; shares of the step time that go."""

    rule: str
    verdict: Verdict
    predicted: Triple | None
    removed: Triple | None = None
    """95 % interval; None where nothing could be measured."""
    seconds: tuple[float, float] | None = None
    memory: int | None = None
    losses_agree: bool | None = None
    steps: int = 0
    processes: int = 0
    why: str = ""
    """Why it failed, or how much longer a trial should be."""


def of(rule: str, predicted: Triple | None, found: Judged) -> Verified:
    """What a measured trial says of a rule's advice."""
    fields = {name: getattr(found, name) for name in Judged.__dataclass_fields__}
    return Verified(rule=rule, predicted=predicted, **fields)


def read(folder: Path) -> dict[str, Verified]:
    """By rule; empty if nothing was tried. Raises ProfilerError for a file that is none of ours."""
    path = folder / FILE
    try:
        found = json.loads(path.read_text())
        if found["schema"] != SCHEMA:
            raise ValueError(found["schema"])
        return {each["rule"]: _verified(each) for each in found["trials"]}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ProfilerError(f"{path} cannot be read: {error}.", "Remove it, or verify again.") from None


def write(folder: Path, trials: dict[str, Verified]) -> None:
    """All of them, in one move."""
    text = json.dumps(
        {"schema": SCHEMA, "trials": [{**asdict(each), "verdict": each.verdict.value} for each in trials.values()]},
        indent=2,
        allow_nan=False,
    )
    beside = folder / f".{FILE}"
    beside.touch(mode=0o600)
    beside.write_text(text + "\n")
    beside.replace(folder / FILE)


def _verified(fields: dict[str, object]) -> Verified:
    triples = {
        name: tuple(float(number) for number in value) if isinstance(value := fields[name], list) else None
        for name in ("predicted", "removed", "seconds")
    }
    return Verified(**{**fields, **triples, "verdict": Verdict(fields["verdict"])})  # type: ignore[arg-type]
