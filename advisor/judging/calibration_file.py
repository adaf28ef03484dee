"""Read and write the file that keeps every verdict, one JSON object per line, append-only until it is full.

  {"schema": "profile-train/calibration@1", "case": "9c1e...", "rule": "data-workers-zero", "verdict": "confirmed",
  "predicted": [0.4, 0.5, 0.6], "removed": [0.45, 0.5, 0.55], ...}

The last line of a case (one rule on one program) counts: repeating a trial adds no evidence.
An unreadable line is skipped and left in place.
"""

import hashlib
import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from advisor.judging.calibration import Calibration, TrialResult
from advisor.models.effects import Triple
from profiler.errors import ProfilerError

SCHEMA: Final = "profile-train/calibration@1"

# Largest size in bytes, about 4000 lines. A full file is renamed to .old, and its newer half continues in a new file.
MOST = 4 * 1024 * 1024


def case(program: Sequence[str], rule: str) -> str:
    """Return the identifier of a case: a hash that does not reveal the program or the rule."""
    return hashlib.sha256("\n".join((*program, rule)).encode(errors="surrogatepass")).hexdigest()[:16]


def read(file: Path) -> tuple[Calibration, str]:
    """Return all trials, and a message if not all of the file can be read."""
    try:
        if not file.is_file():
            return Calibration(), ""
        with open(file, "rb") as stream:
            lines = stream.read(2 * MOST).splitlines()
    except OSError as error:
        return Calibration(), f"{file} cannot be read ({error.strerror or error}), so no past trials are used."
    trials: dict[str, _Line] = {}
    counts, broken_lines = Counter[str](), list[int]()
    for line_number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            trial = msgspec.json.decode(line, type=_Line)
        except (ValueError, msgspec.MsgspecError, RecursionError):
            broken_lines.append(line_number)
        else:
            trials.pop(trial.case, None)
            trials[trial.case] = trial
            counts[trial.rule] += 1
    return Calibration(tuple(trials.values()), counts), _note(file, broken_lines)


def append(file: Path, entry: Mapping[str, Any]) -> None:
    """Append a line to the file, which only its owner can read.

    Raises:
        ProfilerError: the file cannot be written.
    """
    line = json.dumps({"schema": SCHEMA, **entry}, allow_nan=False).encode() + b"\n"
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if file.is_file():
            if file.stat().st_size + len(line) > MOST:
                _halve(file)
            if _is_torn(file):
                line = b"\n" + line
        # Append with a single write: other processes may append at the same time.
        descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, line)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise ProfilerError(
            f"The verdict could not be added to {file}: {error.strerror or error}.",
            "Name another file: --calibration FILE.",
        ) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line(TrialResult):
    schema: Literal["profile-train/calibration@1"]
    case: str
    removed: Triple | None  # required: only an explicit null means not measured


def _note(file: Path, broken: list[int]) -> str:
    if not broken:
        return ""
    subject = f"Line {broken[0]}" if len(broken) == 1 else f"{len(broken)} lines, the first of them {broken[0]},"
    return f"{subject} of {file} cannot be read and {'is' if len(broken) == 1 else 'are'} skipped."


def _halve(file: Path) -> None:
    lines = file.read_bytes().splitlines(keepends=True)
    temporary_file = file.with_name(f".{file.name}")
    temporary_file.touch(mode=0o600)
    temporary_file.write_bytes(b"".join(lines[len(lines) // 2 :]))
    os.replace(file, file.with_name(f"{file.name}.old"))
    os.replace(temporary_file, file)


def _is_torn(file: Path) -> bool:
    """Return whether the last write was cut off within a line."""
    with open(file, "rb") as stream:
        stream.seek(max(0, file.stat().st_size - 1))
        return stream.read(1) not in (b"", b"\n")
