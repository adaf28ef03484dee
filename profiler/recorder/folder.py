"""Where a run is kept: its folder, and the folder of rings while it runs."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from profiler.errors import ProfilerError

NOTE = "recording.json"
DEFAULT = "profile-train-runs"

# Room that the rings of a rank with 16 workers take, twice over.
RINGS_ROOM = 16 << 20


@dataclass(frozen=True, slots=True)
class Note:
    """`recording.json`: what it takes to finish a recording whose recorder was killed."""

    rings: str
    origin: int
    """The run clock's zero on CLOCK_MONOTONIC, ns."""
    recorder: int
    """PID."""
    recorder_started: float | None
    """As `started` tells it, so that a reused PID is not mistaken for it."""
    program: int
    program_started: float | None


def make(out: Path | None, name: str) -> tuple[Path, str | None]:
    """A new run folder, private to the user, and what to tell if it is not where it was wanted."""
    wanted = out or Path(DEFAULT) / f"{time.strftime('%Y%m%d-%H%M%S')}-{Path(name).stem or 'run'}"
    try:
        again = out is not None and bool(list(out.glob("run-*.db")))
        folder = _fresh(wanted, replace=out is not None)
        probe = folder / ".probe"
        probe.touch()
        probe.unlink()
    except OSError as error:
        folder = Path(tempfile.mkdtemp(prefix="profile-train-run-"))
        return folder, f"{wanted} cannot be written ({error.strerror}); this run is kept in {folder}."
    if again and folder == out:
        return folder, f"The earlier recording in {out} is replaced."
    if out is not None and folder != out:
        return folder, f"Another recording is running into {out}; this one is kept in {folder}."
    return folder, None


def _fresh(wanted: Path, *, replace: bool) -> Path:
    candidate = wanted
    for number in range(2, 1000):
        if not candidate.exists():
            candidate.mkdir(parents=True, mode=0o700)
            return candidate
        if replace and not is_running(candidate):
            _clear(candidate)
            return candidate
        candidate = wanted.with_name(f"{wanted.name}-{number}")
    raise ProfilerError(f"There are a thousand runs named {wanted}.", "Choose another folder with --out.")


def _clear(folder: Path) -> None:
    """Forget an earlier run in a folder that the user named again; nothing but a run's own files is touched."""
    for pattern in ("run-*.db", "run-*.db-wal", "run-*.db-shm", NOTE, "result.json", "report.html", "report.md"):
        for path in folder.glob(pattern):
            path.unlink()
    shutil.rmtree(folder / "windows", ignore_errors=True)


def make_rings(folder: Path) -> Path:
    """A private folder on a filesystem with real memory behind it, where there is room."""
    for base in (Path("/dev/shm"), Path(tempfile.gettempdir())):
        with contextlib.suppress(OSError):
            if shutil.disk_usage(base).free > RINGS_ROOM:
                return Path(tempfile.mkdtemp(prefix="profile-train-", dir=base))
    rings = folder / "rings"
    rings.mkdir(mode=0o700, exist_ok=True)
    return rings


def make_windows(folder: Path) -> Path:
    """Where the agents save torch.profiler windows, as an absolute path: the program may change its folder."""
    windows = folder.absolute() / "windows"
    windows.mkdir(mode=0o700, exist_ok=True)
    return windows


def forget(folder: Path, rings: Path) -> None:
    """Nothing has been recorded: leave nothing but what was there."""
    shutil.rmtree(rings, ignore_errors=True)
    for each in (folder / "windows", folder):
        with contextlib.suppress(OSError):
            each.rmdir()


def write_note(folder: Path, note: Note) -> None:
    """Atomically, so that a reader never sees half of it."""
    beside = folder / (NOTE + ".new")
    beside.write_text(json.dumps(asdict(note)))
    os.replace(beside, folder / NOTE)


def read_note(folder: Path) -> Note | None:
    """None where there is none, or it is not ours."""
    try:
        fields = json.loads((folder / NOTE).read_text())
        return Note(**fields)
    except (OSError, ValueError, TypeError):
        return None


def is_running(folder: Path) -> bool:
    """A live recorder writes into this folder."""
    note = read_note(folder)
    return note is not None and is_alive(note.recorder, note.recorder_started)


def is_alive(pid: int, since: float | None) -> bool:
    """The process that was started then is still there."""
    return since is not None and started(pid) == since


def started(pid: int) -> float | None:
    """When a process was started, Unix time; None if it is gone, or a zombie."""
    import psutil

    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else float(process.create_time())
    except psutil.Error:
        return None
