"""Where a run is kept: its folder, and the folder of rings while it runs."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from profiler.errors import ProfilerError
from profiler.recorder import private
from profiler.recorder.job import Job

NOTE = "recording.json"
DEFAULT = "profile-train-runs"

# Room that the rings of a rank with 16 workers take, twice over.
RINGS_ROOM = 16 << 20

# Bytes that the store of the shortest run takes, with its log.
RUN_ROOM = 256 << 10

RINGS = "profile-train-"
"""How the name of a folder of rings begins; the rest is chance."""

_OURS = ("run-*.db", "result.json", "report.html", "report.md", "windows")

JOB = "job"
"""The file that names the job whose recorders share a folder."""

BEAT = 10.0
"""Seconds between two signs of life of a recorder, which recorders on other machines look for."""

SILENT = 60.0
"""Seconds without one from which it counts as dead: several beats, and what NFS keeps attributes for."""

STALE = 600.0
"""Seconds after which a turn was left behind by a process that was killed, if that cannot be looked for."""


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
    part: str = ""
    """What tells this recorder's files from those of the others of its job; empty if it has the folder to itself."""
    where: str | None = None
    """The machine on which the process numbers mean something, as `here` tells it; None: this one."""
    job: str | None = None
    """Job.id."""

    @property
    def is_elsewhere(self) -> bool:
        """Of a recorder on another machine, or in another container of this one."""
        return self.where not in (None, here())


@dataclass(frozen=True, slots=True)
class Seat:
    """Where one recorder may write."""

    folder: Path
    part: str = ""
    """As in Note."""
    told: str | None = None
    """What the user should know about it."""


def make(out: Path | None, name: str) -> tuple[Path, str | None]:
    """A new run folder, private to the user, and what to tell if it is not where it was wanted.

    Raises ProfilerError if there is no place for it, neither there nor in the temporary folders.
    """
    seat = join(out, name, None)
    return seat.folder, seat.told


def join(out: Path | None, name: str, job: Job | None) -> Seat:
    """The same for one recorder of a job: the folder that the others have made, if they have.

    Raises ProfilerError as `make`.
    """
    known = job.start if job is not None and job.is_shared else None
    wanted = out or Path(DEFAULT) / f"{known or time.strftime('%Y%m%d-%H%M%S')}-{Path(name).stem or 'run'}"
    new = not os.path.lexists(wanted)
    seat = None
    try:
        seat = _seat(wanted, job, chosen=out is not None)
        _try(seat.folder)
    except OSError as error:
        if seat is not None:
            remove_note(seat.folder, seat.part)
        if new:
            with contextlib.suppress(OSError):
                wanted.rmdir()
        folder = _elsewhere(wanted, _reason(error))
        return Seat(folder, told=f"{wanted} cannot be written ({_reason(error)}); this run is kept in {folder}.")
    if out is None or seat.folder != out:
        told = None if out is None else f"{out} {_why_not(out)}; this run is kept in {seat.folder}."
        return replace(seat, told=told)
    notes = [seat.told] if seat.told else []
    notes += _seen_by_others(seat.folder)
    return replace(seat, told=" ".join(notes) or None)


def _seen_by_others(folder: Path) -> list[str]:
    """A folder that the user named keeps its mode; what we put into it is ours alone all the same."""
    mode = folder.stat().st_mode
    if not mode & 0o077:
        return []
    can = "write into it, too" if mode & 0o022 else "look into it"
    return [f"Others can {can}: {folder} was there and keeps its permissions; the files of this run are yours alone."]


def _seat(wanted: Path, job: Job | None, *, chosen: bool) -> Seat:
    """In the folder of that name, or the first beside it that can be had. Of one that the user has chosen, an earlier
    run is replaced."""
    candidate = wanted
    for number in range(2, 1000):
        private.make_parents(candidate)
        try:
            candidate.mkdir(mode=0o700)
            made = True
        except FileExistsError:
            made = False
        if made and (job is None or not (chosen or job.is_shared)):
            return Seat(candidate)
        if made or chosen or (job is not None and job.is_shared):
            with turn(candidate, "joining"):
                again = _holds_run(candidate)
                part = _part(candidate, job, chosen=chosen or not again)
                if part is not None:
                    gone = again and not _holds_run(candidate)
                    _reserve(candidate, part, job)
                    return Seat(candidate, part, f"The earlier recording in {wanted} is replaced." if gone else None)
        candidate = wanted.with_name(f"{wanted.name}-{number}")
    raise ProfilerError(f"There are a thousand runs named {wanted}.", "Choose another folder with --out.")


def _part(folder: Path, job: Job | None, *, chosen: bool) -> str | None:
    """By what name this recorder may write into a folder, after what it replaces is gone; None if it may not."""
    other = next((note for note in _notes(folder) if is_live(folder, note)), None)
    if other is None:
        if _why_not(folder) is not None:
            return None
        named = job.part if job is not None and job.is_shared else ""
        begun = bool(named) and job is not None and _job(folder) == job.id and not _store(folder, named).exists()
        if not begun and not chosen:
            return None
        if not begun:
            _clear(folder)
        return named
    # The same command at the same time: nodes of one job, unless nothing tells them apart.
    if job is None or other.job != job.id or not (job.is_shared or other.is_elsewhere):
        return None
    names = (job.part, *(f"{job.part}-{number}" for number in range(2, 1000)))
    part = next(each for each in names if not _is_taken(folder, each))
    if not chosen and part == job.part and _store(folder, part).exists():
        return None  # an earlier start under this name
    for path in (*folder.glob(f"run-{part}.db*"), folder / _note_name(part)):
        path.unlink(missing_ok=True)
    return part


def _is_taken(folder: Path, part: str) -> bool:
    note = read_note(folder, part)
    return note is not None and is_live(folder, note)


def _reserve(folder: Path, part: str, job: Job | None) -> None:
    """From here on others see that somebody records; the recorder writes the rest."""
    if job is None:
        return
    us, since = os.getpid(), started(os.getpid())
    write_note(folder, Note("", 0, us, since, us, since, part=part, where=here(), job=job.id))
    if part:
        private.write(folder / JOB, job.id)


def _job(folder: Path) -> str | None:
    try:
        return (folder / JOB).read_text()
    except (OSError, ValueError):
        return None


def _store(folder: Path, part: str) -> Path:
    return folder / f"run-{part}.db"


def _recordings(folder: Path) -> list[Path]:
    return list(folder.glob("run-*.db"))


@contextlib.contextmanager
def turn(folder: Path, name: str, patience: float = 10.0) -> Iterator[bool]:
    """One process after the other, on whatever machine: whose turn it is has a folder there that holds its mark. It was
    made ready and then moved, which fails where there is such a folder already, on NFS, too.

    False if somebody else has had it for that many seconds; True, also where nothing can be written.
    """
    lock, ready = folder / f".{name}", None
    try:
        ready = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=folder))
        private.write(ready / ready.name, json.dumps([here(), os.getpid(), started(os.getpid())]))
        ours = _took(ready, lock, patience)
    except OSError:
        ours = True
    try:
        yield ours
    finally:
        if ready is not None:
            for held in (lock, ready):
                with contextlib.suppress(OSError):
                    (held / ready.name).unlink(missing_ok=True)
                    held.rmdir()


def _took(ready: Path, lock: Path, patience: float) -> bool:
    """Raises OSError where folders cannot be moved."""
    deadline = time.monotonic() + patience
    while True:
        try:
            ready.rename(lock)
            return True
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST) and not lock.is_dir():
                raise
        late = time.monotonic() >= deadline
        if _vacated(lock, late=late):
            continue
        if late:
            return False
        time.sleep(0.02)


def _vacated(lock: Path, *, late: bool) -> bool:
    """Whether the turn was a killed process's. Its mark is taken out by name: nobody takes out that of the next one."""
    try:
        for mark in lock.iterdir():
            if _is_left_behind(mark, late=late):
                mark.unlink()
                lock.rmdir()
                return True
    except OSError:  # somebody else was faster
        return not lock.exists()
    return False


def _is_left_behind(mark: Path, *, late: bool) -> bool:
    """By its process, if that ran here; else by its age, which is asked for only where it is `late`."""
    try:
        told = json.loads(mark.read_text())
    except (ValueError, RecursionError):
        told = None
    match told:
        case [str(where), int(pid), float(since)] if where == here():
            return not is_alive(pid, since)
    return late and _now(mark.parent.parent) - mark.stat().st_mtime > STALE


def _why_not(folder: Path) -> str | None:
    """Why a folder that the user named cannot be written into; None if it can: nothing of his would be lost."""
    if is_running(folder):
        return "is being recorded into by another run"
    if not _holds_run(folder) and (theirs := next((name for name in _OURS if any(folder.glob(name))), None)):
        return f"holds a {theirs} that is not of a recording"
    return None


def _holds_run(folder: Path) -> bool:
    """A run was recorded into this folder, or was about to be."""
    return any(map(_is_ours, _recordings(folder))) or next(_notes(folder), None) is not None


def _is_ours(path: Path) -> bool:
    # Imported only now: it is seldom asked, and the program starts that much sooner.
    from profiler.store import is_recording

    return is_recording(path)


def _clear(folder: Path) -> None:
    """Forget an earlier run in a folder that the user named again; nothing but a run's own files is touched."""
    if not _holds_run(folder):
        return
    for pattern in (*_OURS, "run-*.db-*", "recording*.json", JOB):
        for path in folder.glob(pattern):
            if path.suffix == ".db" and not _is_ours(path):
                continue
            path.unlink() if path.is_file() else shutil.rmtree(path, ignore_errors=True)
    shutil.rmtree(folder / ".reporting", ignore_errors=True)


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


def make_rings(folder: Path, part: str = "") -> Path:
    """A private folder on a filesystem with real memory behind it, where there is room.

    Raises ProfilerError if not even the run folder can hold it.
    """
    for base in ("/dev/shm", tempfile.gettempdir()):
        with contextlib.suppress(OSError):
            if shutil.disk_usage(base).free > RINGS_ROOM:
                return _begun(Path(tempfile.mkdtemp(prefix=RINGS, dir=base)))
    rings = folder / f"rings{part and '-'}{part}"
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


def windows_of(folder: Path, part: str = "") -> Path:
    """Where a recorder finds the windows: processes of several machines may have one number."""
    return folder / "windows" / part


def make_windows(folder: Path, part: str = "") -> Path:
    """Where the agents save torch.profiler windows, as an absolute path: the program may change its folder.

    Raises ProfilerError if something of somebody else's is in the way.
    """
    windows = folder.absolute() / "windows"
    try:
        private.make_folder(windows)
        if part:
            private.make_folder(windows / part)
    except PermissionError as error:
        raise ProfilerError(f"{windows}: {_reason(error)}.", "Choose another folder with --out.") from error
    except OSError:  # then the first window that is saved says so
        pass
    return windows_of(folder.absolute(), part)


def are_rings(rings: Path, folder: Path) -> bool:
    """What a note in `folder` says to be its rings can be that. A run folder may come from anybody."""
    inside = rings.parent == folder.absolute() and rings.name.partition("-")[0] == "rings"
    named = rings.is_absolute() and (rings.name.startswith(RINGS) or inside)
    return named and private.is_ours_alone(rings) and private.is_ours(folder)


def remove_rings(rings: Path) -> None:
    """Nothing but what agents have written: the folder's name may have come from a file of somebody else's."""
    for pattern in ("*.ring", "*.ring.new", "*.facts", "problems", "*.problem"):
        for path in rings.glob(pattern):
            with contextlib.suppress(OSError):
                path.unlink()
    with contextlib.suppress(OSError):
        rings.rmdir()


def forget(folder: Path, rings: Path, part: str = "") -> None:
    """Nothing has been recorded: leave nothing but what was there."""
    remove_rings(rings)
    if not _store(folder, part).exists():
        remove_note(folder, part)
    if part and not notes(folder) and not _recordings(folder):
        (folder / JOB).unlink(missing_ok=True)
    for each in (windows_of(folder, part), folder / "windows", folder):
        with contextlib.suppress(OSError):
            each.rmdir()


def write_note(folder: Path, note: Note) -> None:
    """Atomically, so that a reader never sees half of it. The recording goes on without, should the disk be full."""
    name = _note_name(note.part)
    beside = folder / (name + ".new")
    try:
        private.write(beside, json.dumps(asdict(note)))
        os.replace(beside, folder / name)
    except OSError:
        with contextlib.suppress(OSError):  # of a disk that can only be read by now
            beside.unlink()


def remove_note(folder: Path, part: str = "") -> None:
    """The recorder has ended."""
    with contextlib.suppress(OSError):
        (folder / _note_name(part)).unlink()


def beat(folder: Path, part: str = "") -> None:
    """A sign of life, for those who cannot see our processes."""
    with contextlib.suppress(OSError):
        os.utime(folder / _note_name(part))


def _note_name(part: str) -> str:
    return f"recording-{part}.json" if part else NOTE


def read_note(folder: Path, part: str = "") -> Note | None:
    """None where there is none, or it is not ours."""
    try:
        fields = json.loads((folder / _note_name(part)).read_text())
    except (OSError, ValueError, RecursionError):
        return None
    # Imported only now: there is one only in a folder that is used again, or whose recorder was cut off.
    from profiler.store.values import Misfit, build

    try:
        note: Note = build(Note, fields)
    except (Misfit, AttributeError):
        return None
    return note if note.part == part else None


def notes(folder: Path) -> list[Note]:
    """Of all recorders that write into the folder, or were cut off there."""
    return list(_notes(folder))


def _notes(folder: Path) -> Iterator[Note]:
    for path in sorted(folder.glob("recording*.json")):
        part = path.name[len("recording") : -len(".json")]
        note = read_note(folder, part[1:]) if part[:1] in ("", "-") else None
        if note is not None:
            yield note


def here() -> str | None:
    """What tells this machine, and this container of it, from others: by their boot and their process numbers."""
    try:
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return None


def is_live(folder: Path, note: Note) -> bool:
    """Its recorder is there: as its process, or by a sign of life of late."""
    if not note.is_elsewhere:
        return is_alive(note.recorder, note.recorder_started)
    try:
        return _now(folder) - (folder / _note_name(note.part)).stat().st_mtime < SILENT
    except OSError:
        return False


def _now(folder: Path) -> float:
    """By the clock that gives files there their times."""
    try:
        with tempfile.NamedTemporaryFile(prefix=".now-", dir=folder) as probe:
            return os.stat(probe.name).st_mtime
    except OSError:
        return time.time()


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
    return any(is_live(folder, note) for note in _notes(folder))


def is_shared(folder: Path) -> bool:
    """Several recorders of a job write, or have written, into this folder."""
    return (folder / JOB).exists()


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
