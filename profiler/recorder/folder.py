"""Where a run is kept: its folder, and the folder of rings while it runs."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from profiler.errors import ProfilerError
from profiler.recorder import private

NOTE = "recording.json"
DEFAULT = "profile-train-runs"

# Room that the rings of a rank with 16 workers take, twice over.
RINGS_ROOM = 16 << 20

# Bytes that the store of the shortest run takes, with its log.
RUN_ROOM = 256 << 10

RINGS = "profile-train-"
"""How the name of a folder of rings begins; the rest is chance."""

_OURS = ("run-*.db", "result.json", "report.html", "report.md", "windows")


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
    home: tuple[str, int] | None = None
    """The run folder's path and inode: a copy of it has neither."""


def make(out: Path | None, name: str) -> tuple[Path, str | None]:
    """A new run folder, private to the user, and what to tell if it is not where it was wanted.

    Raises ProfilerError if there is no place for it, neither there nor in the temporary folders.
    """
    wanted = out or Path(DEFAULT) / f"{time.strftime('%Y%m%d-%H%M%S')}-{Path(name).stem or 'run'}"
    new = not os.path.lexists(wanted)
    try:
        again = out is not None and _holds_run(out)
        folder = _fresh(wanted, replace=out is not None)
        _try(folder)
    except OSError as error:
        if new:
            with contextlib.suppress(OSError):
                wanted.rmdir()
        folder = _elsewhere(wanted, _reason(error))
        return folder, f"{wanted} cannot be written ({_reason(error)}); this run is kept in {folder}."
    if out is None or folder != out:
        return folder, None if out is None else f"{out} {_why_not(out)}; this run is kept in {folder}."
    notes = [f"The earlier recording in {out} is replaced."] if again else []
    notes += _seen_by_others(folder)
    return folder, " ".join(notes) or None


def _seen_by_others(folder: Path) -> list[str]:
    """A folder that the user named keeps its mode; what we put into it is ours alone all the same."""
    mode = folder.stat().st_mode
    if not mode & 0o077:
        return []
    can = "write into it, too" if mode & 0o022 else "look into it"
    return [f"Others can {can}: {folder} was there and keeps its permissions; the files of this run are yours alone."]


def _fresh(wanted: Path, *, replace: bool) -> Path:
    candidate = wanted
    for number in range(2, 1000):
        if not candidate.exists():
            private.make_parents(candidate)
            candidate.mkdir(mode=0o700)
            return candidate
        if replace and _why_not(candidate) is None:
            _clear(candidate)
            return candidate
        candidate = wanted.with_name(f"{wanted.name}-{number}")
    raise ProfilerError(f"There are a thousand runs named {wanted}.", "Choose another folder with --out.")


def _why_not(folder: Path) -> str | None:
    """Why a folder that the user named cannot be written into; None if it can: nothing of his would be lost."""
    if is_running(folder):
        return "is being recorded into by another run"
    if not _holds_run(folder) and (theirs := next((name for name in _OURS if any(folder.glob(name))), None)):
        return f"holds a {theirs} that is not of a recording"
    return None


def _holds_run(folder: Path) -> bool:
    """A run was recorded into this folder, or was about to be."""
    return read_note(folder) is not None or any(map(_is_ours, folder.glob("run-*.db")))


def _is_ours(path: Path) -> bool:
    # Imported only now: it is seldom asked, and the program starts that much sooner.
    from profiler.store import is_recording

    return is_recording(path)


def _clear(folder: Path) -> None:
    """Forget an earlier run in a folder that the user named again; nothing but a run's own files is touched."""
    if not _holds_run(folder):
        return
    for pattern in (*_OURS, "run-*.db-*", NOTE):
        for path in folder.glob(pattern):
            if path.suffix == ".db" and not _is_ours(path):
                continue
            path.unlink() if path.is_file() else shutil.rmtree(path, ignore_errors=True)


def _try(folder: Path) -> None:
    """Raises OSError where a recording cannot even begin: no room, no permission, no locks."""
    import sqlite3  # only now: whoever asks a folder for its rings does without

    with tempfile.TemporaryDirectory(prefix=".probe-", dir=folder) as inside:  # where nobody else put anything
        probe = Path(inside) / "probe"
        probe.touch(mode=0o600)  # what the system says is clearer than what SQLite does
        try:
            with contextlib.closing(sqlite3.connect(probe, timeout=0.0, isolation_level=None)) as connection:
                connection.execute("PRAGMA synchronous = OFF")
                connection.execute("CREATE TABLE room AS SELECT zeroblob(?)", (RUN_ROOM,))
        except sqlite3.Error as error:
            raise OSError(str(error)) from error


def _elsewhere(wanted: Path, reason: str) -> Path:
    for base in (tempfile.gettempdir, lambda: "/dev/shm"):  # the latter is memory: better than nothing
        folder = None
        try:
            folder = Path(tempfile.mkdtemp(prefix="profile-train-run-", dir=base()))
            _try(folder)
        except OSError:
            if folder is not None:
                folder.rmdir()
        else:
            return folder
    raise ProfilerError(
        f"{wanted} cannot be written ({reason}), and neither can the temporary folders.",
        "Make room, or choose another folder with --out.",
    )


def _reason(error: OSError) -> str:
    return error.strerror or str(error)


def make_rings(folder: Path) -> Path:
    """A private folder on a filesystem with real memory behind it, where there is room.

    Raises ProfilerError if not even the run folder can hold it.
    """
    for base in ("/dev/shm", tempfile.gettempdir()):
        with contextlib.suppress(OSError):
            if shutil.disk_usage(base).free > RINGS_ROOM:
                return _begun(Path(tempfile.mkdtemp(prefix=RINGS, dir=base)))
    rings = folder / "rings"
    try:
        private.make_folder(rings)
        return _begun(rings)
    except OSError as error:
        raise ProfilerError(
            f"There is no room for the events of the program: {_reason(error)}.", "Make room in /dev/shm or /tmp."
        ) from error


def _begun(rings: Path) -> Path:
    """The file in which a process says that it found no room has its first block already, or it could not say so."""
    private.write(rings / "problems", "\n")
    return rings


def make_windows(folder: Path) -> Path:
    """Where the agents save torch.profiler windows, as an absolute path: the program may change its folder.

    Raises ProfilerError if something of somebody else's is in the way.
    """
    windows = folder.absolute() / "windows"
    try:
        private.make_folder(windows)
    except PermissionError as error:
        raise ProfilerError(f"{windows}: {_reason(error)}.", "Choose another folder with --out.") from error
    except OSError:  # then the first window that is saved says so
        pass
    return windows


def are_rings(rings: Path, folder: Path) -> bool:
    """What a note in `folder` says to be its rings can be that. A run folder may come from anybody."""
    named = rings.is_absolute() and (rings.name.startswith(RINGS) or rings == folder.absolute() / "rings")
    return named and private.is_ours_alone(rings) and private.is_ours(folder)


def remove_rings(rings: Path) -> None:
    """Nothing but what agents have written: the folder's name may have come from a file of somebody else's."""
    for pattern in ("*.ring", "*.ring.new", "*.facts", "problems", "*.problem"):
        for path in rings.glob(pattern):
            with contextlib.suppress(OSError):
                path.unlink()
    with contextlib.suppress(OSError):
        rings.rmdir()


def forget(folder: Path, rings: Path) -> None:
    """Nothing has been recorded: leave nothing but what was there."""
    remove_rings(rings)
    for each in (folder / "windows", folder):
        with contextlib.suppress(OSError):
            each.rmdir()


def write_note(folder: Path, note: Note) -> None:
    """Atomically, so that a reader never sees half of it. The recording goes on without, should the disk be full."""
    beside = folder / (NOTE + ".new")
    try:
        private.write(beside, json.dumps(asdict(note)))
        os.replace(beside, folder / NOTE)
    except OSError:
        with contextlib.suppress(OSError):  # of a disk that can only be read by now
            beside.unlink()


def read_note(folder: Path) -> Note | None:
    """None where there is none, or it is not ours."""
    try:
        fields = json.loads((folder / NOTE).read_text())
    except (OSError, ValueError, RecursionError):
        return None
    # Imported only now: there is one only in a folder that is used again, or whose recorder was cut off.
    from profiler.store.values import Misfit, build

    try:
        note: Note = build(Note, fields)
    except (Misfit, AttributeError):
        return None
    return note


def home(folder: Path) -> tuple[str, int]:
    """What tells a run folder from its copies; raises OSError."""
    return str(folder.absolute()), folder.stat().st_ino


def is_copy(folder: Path, note: Note) -> bool:
    """The folder was copied, not moved, since its note was written."""
    path, inode = home(folder)
    return note.home is not None and note.home[0] != path and note.home[1] != inode


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Whoever else wants to finish this recording waits until we have; where nothing can be locked, nobody does."""
    try:
        lock = os.open(folder, os.O_RDONLY)
    except OSError:
        yield
        return
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def is_running(folder: Path) -> bool:
    """A live recorder writes into this folder."""
    note = read_note(folder)
    return note is not None and is_alive(note.recorder, note.recorder_started)


def is_alive(pid: int, since: float | None) -> bool:
    """The process that was started then is still there."""
    return since is not None and started(pid) == since


def started(pid: int) -> float | None:
    """When a process was started; None if it is gone, or a zombie. Told apart from others of its PID by this, so it
    must not change as the system's clock is set: on Linux it is in clock ticks since boot, elsewhere Unix time."""
    with contextlib.suppress(OSError):
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return None if state == "Z" else float(fields[18])

    import psutil

    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else float(process.create_time())
    except (psutil.Error, ValueError, OverflowError):  # the latter two: it is no PID
        return None
