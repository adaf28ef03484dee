"""The places of a run: its folder, and the folder of rings while it is being recorded."""

import contextlib
import errno
import fcntl
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from profiler import ours, private
from profiler.errors import ProfilerError
from profiler.reading import text
from profiler.recorder.job import Job

NOTE = "recording.json"
DEFAULT = "profile-train-runs"

# Bytes that must be free for the rings: twice the size for a rank with 16 workers.
RINGS_ROOM = 16 << 20

# Bytes that the store of the shortest run takes, with its log.
RUN_ROOM = 256 << 10

RINGS = "profile-train-"
"""Prefix of the name of a folder of rings; the rest is random."""

WINDOWS = "window-*.json*"
"""File name pattern of torch.profiler windows."""

_TAKEN = ("run-*.db", "result.json", "report.html", "report.md", "windows")
"""Names that a folder without a recording must not contain. Otherwise its files could be taken for profile-train's."""

JOB = ".profile-train-job"
"""Name of the file with the ID of the job whose recorders share a folder."""

BEAT = 10.0
"""Seconds between two heartbeats of a recorder, for recorders on other machines."""

SILENT = 60.0
"""Seconds without a heartbeat after which a recorder counts as dead.

That is several heartbeats, and as long as NFS caches attributes.
"""

STALE = 600.0
"""Seconds after which a lock counts as left behind by a killed process.

This applies only if the process cannot be checked.
"""


@dataclass(frozen=True, slots=True)
class RecordingNote:
    """The content of `recording.json`: everything needed to finish a recording whose recorder was killed."""

    rings: str
    origin: int
    """The run clock's zero on CLOCK_MONOTONIC, ns."""
    program: int
    program_started: float | None
    recorder: int = field(default_factory=os.getpid)
    """The recorder's PID."""
    recorder_started: float | None = field(default_factory=lambda: started(os.getpid()))
    """Start time of the recorder, as `started` returns it, so that a reused PID is not mistaken for it."""
    home: tuple[str, int] | None = None
    """The run folder's path and inode; a copy of it differs in both."""
    part: str = ""
    """Suffix of this recorder's files in a folder shared by a job; empty if it has the folder to itself."""
    where: str | None = field(default_factory=lambda: machine_id())
    """The machine on which the PIDs are valid, as `machine_id` returns it; None: this one."""
    job: str | None = None
    """The `Job.id`."""

    @property
    def is_elsewhere(self) -> bool:
        """Return whether the recorder is on another machine, or in another container of this one."""
        return self.where not in (None, machine_id())


@dataclass(frozen=True, slots=True)
class Seat:
    """The place where one recorder may write."""

    folder: Path
    part: str = ""
    """Suffix of its files, as in `RecordingNote`."""
    notice: str | None = None
    """Notice about the place for the user."""
    earlier: Path | None = None
    """The folder in which an earlier recording waits for `settle`."""

    @property
    def warning(self) -> str | None:
        """Return the warning to print before the program starts; None if nothing is overwritten."""
        if self.earlier is None:
            return None
        command = next((command for command, _ in _outlines(self.earlier) if command), [])
        script = " ".join(command[: 2 if command[:1] == ["-m"] else 1]) or "a program"
        return f"the earlier recording of {script} in {self.folder} will be overwritten once this run completes."


def join(out: Path | None, name: str, job: Job | None) -> Seat:
    """Return a run folder for one recorder, private to the user: a new one, or the one its job shares.

    Raises:
        ProfilerError: there is no place for it, neither there nor in the temporary folders.
    """
    start = job.start if job is not None and job.is_shared else None
    path = out or Path(DEFAULT) / f"{start or time.strftime('%Y%m%d-%H%M%S')}-{Path(name).stem or 'run'}"
    is_new = not os.path.lexists(path)
    seat = None
    try:
        seat = _seat(path, job, chosen=out is not None)
        _try(seat.folder)
    except OSError as error:
        if seat is not None:
            remove_note(seat.folder, seat.part)
            restore(seat.earlier)
        if is_new:
            with contextlib.suppress(OSError):
                path.rmdir()
        folder = _elsewhere(path, _reason(error))
        return Seat(folder, notice=f"{path} cannot be written ({_reason(error)}); this run is kept in {folder}.")
    if out is None:
        warning = f"{seat.folder.parent} belongs to another user, who can remove or replace this run."
        notice = None if private.is_ours(seat.folder.parent) else warning
    elif seat.folder != out:
        notice = f"{out} {_why_not(out)}; this run is kept in {seat.folder}."
    else:
        notice = " ".join(filter(None, (seat.notice, _seen_by_others(seat.folder)))) or None
    return replace(seat, notice=notice)


def _seen_by_others(folder: Path) -> str | None:
    """Return a note if others can access a folder that the user chose.

    Such a folder keeps its mode; the files of the run are still private.
    """
    mode = folder.stat().st_mode
    if not mode & 0o077:
        return None
    action = "write into" if mode & 0o022 else "look into"
    return (
        f"Other users can {action} {folder}, which existed and keeps its permissions; only you can read the files of "
        "this run."
    )


def _seat(wanted: Path, job: Job | None, *, chosen: bool) -> Seat:
    """Return the folder of that name, or the first free one of a similar name.

    In a folder that the user chose, an earlier run is set aside.
    """
    candidate, shared = wanted, job is not None and job.is_shared
    for number in range(2, 1000):
        private.make_parents(candidate)
        try:
            candidate.mkdir(mode=0o700)
            is_new = True
        except FileExistsError:
            is_new = False
        if is_new and (job is None or not (chosen or shared)):
            return Seat(candidate)
        if is_new or chosen or shared:
            with lock(candidate, "joining"):
                seat = _seat_in(candidate, job, chosen=chosen or not _holds_run(candidate))
                if seat is not None:
                    names = () if is_new else (path.name for path in candidate.iterdir())
                    if any(not name.startswith((".", "run-", "recording", "earlier-", "windows")) for name in names):
                        seat = replace(seat, notice=f"{candidate} contains other files, which are not touched.")
                    _reserve(seat, job)
                    return seat
        candidate = wanted.with_name(f"{wanted.name}-{number}")
    raise ProfilerError(f"There are a thousand runs named {wanted}.", "Choose another folder with --out.")


def _seat_in(folder: Path, job: Job | None, *, chosen: bool) -> Seat | None:
    """Return the seat in this folder, next to other recorders, or after an earlier run was set aside.

    None if the recorder may not write there.
    """
    live_notes = {note.part: note for note in notes(folder) if is_live(folder, note)}
    if not live_notes:
        if _why_not(folder) is not None:
            return None
        job_part = job.part if job is not None and job.is_shared else ""
        has_begun = (
            bool(job_part)
            and job is not None
            and text(folder / JOB) == job.id
            and not store_of(folder, job_part).exists()
        )
        if not has_begun and not chosen:
            return None
        return Seat(folder, job_part, earlier=None if has_begun else _set_aside(folder))
    # The same command at the same time: nodes of one job, unless nothing distinguishes them.
    other_note = next(iter(live_notes.values()))
    if job is None or other_note.job != job.id or not (job.is_shared or other_note.is_elsewhere):
        return None
    names = (job.part, *(f"{job.part}-{number}" for number in range(2, 1000)))
    part = next(name for name in names if name not in live_notes)
    store = store_of(folder, part)
    if not chosen and part == job.part and store.exists():
        return None  # an earlier start under this name
    if store.exists() and _is_ours(store):
        for path in _with_logs(store):
            path.unlink()
    remove_note(folder, part)
    return Seat(folder, part)


def _reserve(seat: Seat, job: Job | None) -> None:
    """Mark the folder as in use for other recorders; the recorder completes the note."""
    if job is None:
        return
    write_note(seat.folder, RecordingNote("", 0, os.getpid(), started(os.getpid()), part=seat.part, job=job.id))
    if seat.part:
        private.write(seat.folder / JOB, job.id)


def store_of(folder: Path, part: str) -> Path:
    """Return the store of the recorder with that suffix, whether it exists or not."""
    return folder / f"run-{part}.db"


def _recordings(folder: Path) -> list[Path]:
    return list(folder.glob("run-*.db"))


@contextlib.contextmanager
def lock(folder: Path, name: str, patience: float = 10.0) -> Iterator[bool]:
    """Hold a named lock in the folder, which excludes other processes on any machine.

    The holder has a lock folder there that contains its mark. It was prepared under another name and then moved, which
    fails if the lock folder exists, also on NFS.

    Yields False if another process held the lock for `patience` seconds; else True, also if nothing can be written.
    """
    target, ready = folder / f".{name}", None
    try:
        ready = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=folder))
        private.write(ready / ready.name, json.dumps([machine_id(), os.getpid(), started(os.getpid())]))
        is_ours = _took(ready, target, patience)
    except OSError:
        is_ours = True
    try:
        yield is_ours
    finally:
        if ready is not None:
            for lock_folder in (target, ready):
                with contextlib.suppress(OSError):
                    (lock_folder / ready.name).unlink(missing_ok=True)
                    lock_folder.rmdir()


def _took(ready: Path, target: Path, patience: float) -> bool:
    """Take the lock by moving the prepared folder; return whether that succeeded in time.

    Raises:
        OSError: folders cannot be moved.
    """
    deadline = time.monotonic() + patience
    while True:
        try:
            ready.rename(target)
            return True
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST) and not target.is_dir():
                raise
        late = time.monotonic() >= deadline
        if _vacated(target, late=late):
            continue
        if late:
            return False
        time.sleep(0.02)


def _vacated(target: Path, *, late: bool) -> bool:
    """Free a lock held by a killed process; return whether it is free.

    The mark is removed by its name, so the mark of the next holder cannot be removed by mistake.
    """
    try:
        for mark in target.iterdir():
            if _is_left_behind(mark, late=late):
                mark.unlink()
                target.rmdir()
                return True
    except OSError:  # another process was faster
        return not target.exists()
    return False


def _is_left_behind(mark: Path, *, late: bool) -> bool:
    """Return whether a lock's holder is gone.

    A process of this machine is looked up. For any other, the age of the mark decides, and only if `late`.
    """
    try:
        holder = json.loads(mark.read_text())
    except (ValueError, RecursionError):
        holder = None
    match holder:
        case [str(machine), int(pid), float(start)] if machine == machine_id():
            return not is_alive(pid, start)
    return late and _now(mark.parent.parent) - mark.stat().st_mtime > STALE


def _why_not(folder: Path) -> str | None:
    """Return why a folder that the user chose cannot be used. None if it can, without loss of the user's files."""
    if is_running(folder):
        return "is being recorded into by another run"
    foreign_name = next((name for name in _TAKEN if any(folder.glob(name))), None) if not _holds_run(folder) else None
    if foreign_name is None and (folder / "windows").exists() and not private.is_ours_alone(folder / "windows"):
        foreign_name = "windows"
    if foreign_name is None:
        foreign_name = next((path.name for path, note in _notes(folder).items() if note is None), None)
    return foreign_name and f'contains "{foreign_name}", which is not from a recording'


def _holds_run(folder: Path) -> bool:
    """Return whether a run was recorded into this folder, or was about to be."""
    return any(map(_is_ours, _recordings(folder))) or bool(notes(folder))


def _is_ours(path: Path) -> bool:
    # Imported only now: it is rarely needed, and the program starts sooner.
    from profiler.store import is_recording

    return is_recording(path)


def _with_logs(store: Path) -> list[Path]:
    """Return a store's file and SQLite's companion files."""
    return [path for suffix in ("", "-wal", "-shm", "-journal") if (path := Path(f"{store}{suffix}")).is_file()]


def _set_aside(folder: Path) -> Path | None:
    """Move an earlier run in a folder into a subfolder and return that; None if there is no run.

    Only files of a run are moved.

    Raises:
        OSError: it cannot be moved.
    """
    if not _holds_run(folder):
        return None
    logs = [log for path in _recordings(folder) if _is_ours(path) for log in _with_logs(path)]
    windows = [path for path in (folder / "windows").rglob(WINDOWS) if path.is_file()]
    note_paths = [path for path, note in _notes(folder).items() if note is not None]
    lists = [path for path in (folder / ours.LIST, folder / JOB) if path.is_file()]
    earlier = Path(tempfile.mkdtemp(prefix="earlier-", dir=folder))
    for path in (*logs, *windows, *note_paths, *ours.unchanged(folder), *lists):
        target = earlier / path.relative_to(folder)
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.rename(target)
    return earlier


def settle(earlier: Path | None, *, completed: bool) -> str | None:
    """Remove the recording that was set aside, unless it completed and the new one did not.

    If it stays, return a note for the user.
    """
    if earlier is None or not earlier.is_dir():
        return None
    if not completed and any(outcome == "completed" for _, outcome in _outlines(earlier)):
        return f"This run did not complete: the earlier recording is kept in {earlier}."
    shutil.rmtree(earlier, ignore_errors=True)
    return None


def restore(earlier: Path | None) -> None:
    """Move back the recording that was set aside, because nothing replaced it."""
    if earlier is None:
        return
    for base, _, names in os.walk(earlier, topdown=False):
        for path in (Path(base, name) for name in names):
            target = earlier.parent / path.relative_to(earlier)
            with contextlib.suppress(OSError):
                target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                if not target.exists():
                    path.rename(target)
        with contextlib.suppress(OSError):
            os.rmdir(base)


def _outlines(folder: Path) -> Iterator[tuple[list[str], str]]:
    """Yield command and outcome of each readable recording in a folder."""
    from profiler.store import outline  # only now: it is rarely needed, and the program starts sooner

    for path in _recordings(folder):
        with contextlib.suppress(ProfilerError, OSError):
            yield outline(path)


def _try(folder: Path) -> None:
    """Check that a recording can begin in the folder.

    Raises:
        OSError: there is no room, no permission, or no file locking.
    """
    import sqlite3  # only now: finding a folder's rings does not need it

    with tempfile.TemporaryDirectory(prefix=".probe-", dir=folder) as probe_folder:  # contains no files of others
        probe = Path(probe_folder) / "probe"
        probe.touch(mode=0o600)  # the system's error is clearer than SQLite's
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
        "Free some disk space, or choose another folder with --out.",
    )


def _reason(error: OSError) -> str:
    return error.strerror or str(error)


def make_rings(folder: Path, part: str = "") -> Path:
    """Create a private folder for the rings, in shared memory or a temporary folder if there is room.

    Raises:
        ProfilerError: not even the run folder can hold it.
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
            f"There is no room for the events of the program: {_reason(error)}.", "Free some space in /dev/shm or /tmp."
        ) from error


def _begun(rings: Path) -> Path:
    """Create the file for reports of missing room.

    Its first block is allocated now, because a process without room could not report otherwise.
    """
    private.write(rings / "problems", "\n")
    return rings


def windows_of(folder: Path, part: str = "") -> Path:
    """Return the folder of a recorder's windows: a separate one, because PIDs repeat across machines."""
    return folder / "windows" / part


def make_windows(folder: Path, part: str = "") -> Path:
    """Create the folder for torch.profiler windows; return its absolute path.

    The path is absolute because the program may change its working directory.

    Raises:
        ProfilerError: a file or folder that is not private to this user is in the way.
    """
    windows = folder.absolute() / "windows"
    try:
        private.make_folder(windows)
        if part:
            private.make_folder(windows / part)
    except PermissionError as error:
        raise ProfilerError(f"{windows}: {_reason(error)}.", "Choose another folder with --out.") from error
    except OSError:  # the first window to be saved reports it
        pass
    return windows_of(folder.absolute(), part)


def are_rings(rings: Path, folder: Path) -> bool:
    """Return whether a path that a note names can be its rings folder. The run folder may come from anyone."""
    is_inside = rings.parent == folder.absolute() and rings.name.partition("-")[0] == "rings"
    has_name = rings.is_absolute() and (rings.name.startswith(RINGS) or is_inside)
    return has_name and private.is_ours_alone(rings) and private.is_ours(folder)


def remove_rings(rings: Path) -> None:
    """Remove a folder of rings, but only files that agents have written.

    The folder's name may come from a foreign file.
    """
    for pattern in ("*.ring", "*.ring.new", "*.facts", "problems", "*.problem", "stacks-*"):
        for path in rings.glob(pattern):
            with contextlib.suppress(OSError):
                path.unlink()
    with contextlib.suppress(OSError):
        rings.rmdir()


def leave(seat: Seat, rings: Path | None) -> None:
    """Remove all traces of a recording that did not begin, and restore the one that was set aside."""
    folder, part = seat.folder, seat.part
    if rings is not None:
        remove_rings(rings)
    if not store_of(folder, part).exists():
        remove_note(folder, part)
    if part and not notes(folder) and not _recordings(folder):
        (folder / JOB).unlink(missing_ok=True)
    for path in (windows_of(folder, part), folder / "windows", folder):
        with contextlib.suppress(OSError):
            path.rmdir()
    restore(seat.earlier)


def write_note(folder: Path, note: RecordingNote) -> None:
    """Write a note atomically, so that a reader never sees half of it; on a full disk, continue without it."""
    name = _note_name(note.part)
    temporary = folder / (name + ".new")
    try:
        private.write(temporary, json.dumps(asdict(note)))
        os.replace(temporary, folder / name)
    except OSError:
        with contextlib.suppress(OSError):  # the disk may be read-only now
            temporary.unlink()


def remove_note(folder: Path, part: str = "") -> None:
    """Remove the note of a recorder that has ended."""
    with contextlib.suppress(OSError):
        if any(note.part == part for note in notes(folder)):  # it may be a file of the program instead
            (folder / _note_name(part)).unlink()


def heartbeat(folder: Path, part: str = "") -> None:
    """Update the heartbeat, for recorders that cannot see this machine's processes."""
    with contextlib.suppress(OSError):
        os.utime(folder / _note_name(part))


def _note_name(part: str) -> str:
    return f"recording-{part}.json" if part else NOTE


def _note_in(path: Path) -> RecordingNote | None:
    with contextlib.suppress(OSError, ValueError, RecursionError, TypeError):
        match json.loads(path.read_text()):
            case {
                "rings": str(),
                "origin": int(),
                "recorder": int(),
                "recorder_started": float() | None,
                "program": int(),
                "program_started": float() | None,
                "home": [str(), int()] | None,
                "part": str(),
                "where": str() | None,
                "job": str() | None,
            } as fields:
                return RecordingNote(**fields)
    return None


def _notes(folder: Path) -> dict[Path, RecordingNote | None]:
    """Return the files with a note's name, and their notes; None for a foreign file."""
    return {path: _note_in(path) for path in sorted((*folder.glob(NOTE), *folder.glob("recording-*.json")))}


def notes(folder: Path) -> list[RecordingNote]:
    """Return the notes of all recorders that write into the folder, or were cut off there."""
    return [note for path, note in _notes(folder).items() if note and path.name == _note_name(note.part)]


def machine_id() -> str | None:
    """Return an identifier of this machine and container, by boot and PID namespace; None if unknown."""
    try:
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return None


def is_live(folder: Path, note: RecordingNote) -> bool:
    """Return whether a note's recorder is alive, by its process or by a recent heartbeat."""
    if not note.is_elsewhere:
        return is_alive(note.recorder, note.recorder_started)
    try:
        return _now(folder) - (folder / _note_name(note.part)).stat().st_mtime < SILENT
    except OSError:
        return False


def _now(folder: Path) -> float:
    """Return the time by the clock that dates files in that folder."""
    try:
        with tempfile.NamedTemporaryFile(prefix=".now-", dir=folder) as probe:
            return os.stat(probe.name).st_mtime
    except OSError:
        return time.time()


def home(folder: Path) -> tuple[str, int]:
    """Return the path and inode that distinguish a run folder from its copies.

    Raises:
        OSError: the folder cannot be read.
    """
    return str(folder.absolute()), folder.stat().st_ino


def is_copy(folder: Path, note: RecordingNote) -> bool:
    """Return whether the folder was copied, not moved, since its note was written."""
    path, inode = home(folder)
    return note.home is not None and note.home[0] != path and note.home[1] != inode


@contextlib.contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Serialize finalization with a file lock; no-op if locking is unsupported."""
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
    """Return whether a live recorder writes into this folder."""
    return any(is_live(folder, note) for note in notes(folder))


def is_shared(folder: Path) -> bool:
    """Return whether several recorders of a job write, or have written, into this folder."""
    return (folder / JOB).exists()


def is_alive(pid: int, since: float | None) -> bool:
    """Return whether the process with that PID and start time still exists."""
    return since is not None and started(pid) == since


def state(pid: int) -> str:
    """Return a process's state as in proc(5); empty if it is gone."""
    return "".join(_stat(pid)[:1])


def started(pid: int) -> float | None:
    """Return when a process was started, in clock ticks since boot; None if it is gone, or a zombie.

    The value distinguishes processes that reuse a PID, and does not change when the system's clock is set.
    """
    fields = _stat(pid)
    return float(fields[19]) if fields and fields[0] != "Z" else None


def _stat(pid: int) -> list[str]:
    """Return the fields of proc(5)'s stat from the state on; empty if the process is gone."""
    return text(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
