"""Merge separate recordings of one job into one folder."""

import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from advisor.runs.nodes import rank_numbers
from profiler.errors import ProfilerError
from profiler.recorder import folder as run_folder
from profiler.recorder.job import common
from profiler.recorder.record import finish_orphan
from profiler.store import Tables, find, read

HOUR = 3600.0
"""Largest gap in seconds between recordings of one job, well above the clock differences of hosts."""


@dataclass(frozen=True, slots=True)
class RecorderFile:
    """One recorder's file, and the ranks that it holds."""

    path: Path
    node: Tables
    ranks: set[int]


def merge(folders: Sequence[Path], out: Path) -> list[RecorderFile]:
    """Copy the recordings in `folders` into the new folder `out`, and return its parts as found in `folders`.

    Raises:
        ProfilerError: the folders are not of one job, or one is still being recorded. Nothing is left of `out`.
    """
    if len({folder.resolve() for folder in folders}) < max(2, len(folders)):
        raise ProfilerError("There is nothing to merge.", "Name two different run folders: profile-train merge A B")
    if os.path.lexists(out) and (not out.is_dir() or any(out.iterdir())):
        raise ProfilerError(f"{out} exists already.", "Choose a new folder with --out.")
    parts = [part for folder in folders for part in _parts(folder)]
    for first, second in combinations(parts, 2):
        _check(first, second)
    out.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))  # mode 0700, like a run's folder
    try:
        for part, name in zip(parts, _names(parts), strict=True):
            _copy(part.path, temporary / name)
        (temporary / run_folder.JOB).write_text(
            next((run.job for part in parts for run in part.node.runs if run.job), "")
        )
        os.replace(temporary, out)
    except OSError as error:
        raise ProfilerError(
            f"{out} could not be written: {error.strerror or error}.",
            "Free some disk space, or choose another folder with --out.",
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return parts


def _parts(folder: Path) -> list[RecorderFile]:
    paths = find(folder)
    if run_folder.is_running(folder):
        raise ProfilerError(f"{folder} is still being recorded.", "Wait until the recording ends, then merge it.")
    finish_orphan(folder)
    nodes = [read(path) for path in paths]
    return [RecorderFile(path, node, rank_numbers(node)) for path, node in zip(paths, nodes, strict=True)]


def _check(one: RecorderFile, other: RecorderFile) -> None:
    """Check that two parts can be of one job.

    Raises:
        ProfilerError: they cannot.
    """
    mismatch = f"{one.path} and {other.path} are not of one job"
    first, second = (part.node.runs[-1] if part.node.runs else None for part in (one, other))
    if first is None or second is None:
        damaged_path = one.path if first is None else other.path
        raise ProfilerError(
            f"The recording in {damaged_path} is damaged: it does not contain the command.", "Leave it out."
        )
    if common(first.command) != common(second.command):
        commands = " and ".join(repr(" ".join(run.command)) for run in (first, second))
        raise ProfilerError(f"{mismatch}: their commands are {commands}.", "Merge only recordings of the same command.")
    worlds = [
        {process.world_size for process in part.node.processes if process.role == "rank"} for part in (one, other)
    ]
    if worlds[0] and worlds[1] and worlds[0] != worlds[1]:
        sizes = " and ".join("/".join(map(str, sorted(world))) for world in worlds)
        raise ProfilerError(f"{mismatch}: their world sizes are {sizes}.", "Merge only recordings of the same launch.")
    if one.path.parent != other.path.parent and (shared := one.ranks & other.ranks):
        rank = f"rank {min(shared)}" if len(shared) == 1 else f"ranks {', '.join(map(str, sorted(shared)))}"
        raise ProfilerError(
            f"{mismatch}: both contain {rank}.",
            "Leave one of them out; ranks that torch.distributed does not know need RANK and WORLD_SIZE.",
        )
    spans = sorted((run.started_at, run.started_at + (run.duration or 0.0)) for run in (first, second))
    if spans[1][0] - spans[0][1] > HOUR:
        hours = (spans[1][0] - spans[0][1]) / HOUR
        raise ProfilerError(
            f"{mismatch}: one began {hours:.0f} h after the other had ended.", "Merge only recordings of one job."
        )


def _names(parts: Sequence[RecorderFile]) -> list[str]:
    """Return the file names of the parts; several hosts may share a name."""
    stems: list[str] = []
    for part in parts:
        stem = part.path.stem
        names = (stem, *(f"{stem}-{number}" for number in range(2, len(parts) + 2)))
        stems.append(next(name for name in names if name not in stems))
    return [f"{name}.db" for name in stems]


def _copy(path: Path, to: Path) -> None:
    """Copy a recording, with the log that a killed recorder leaves; only the owner may read the copies."""
    for suffix in ("", "-wal", "-journal"):
        if (original := path.with_name(path.name + suffix)).exists():
            target = to.with_name(to.name + suffix)
            target.touch(0o600)
            shutil.copyfile(original, target)
