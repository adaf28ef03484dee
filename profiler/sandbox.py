"""A view of the filesystem in which everything can be read as usual, but nothing of the user's can be changed.

Writes of a process and its children into the `covered` folders go to a scratch folder (overlayfs in a mount namespace
of their own; see overlay in the kernel's documentation and mount_setattr(2)). Writes anywhere else fail as on a
read-only filesystem. A filesystem mounted below a covered folder has its own layer, or is read-only. Shared memory
(System V and /dev/shm) is private. The only network interface is the loopback, so that no abstract socket outside can
be reached (network_namespaces(7)). The processes can see and signal only each other (pid_namespaces(7)). This needs
root, or a kernel that allows user namespaces (most do).
"""

import contextlib
import ctypes
import errno
import fcntl
import os
import re
import select
import shutil
import signal
import socket
import stat
import struct
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from profiler.errors import ProfilerError
from profiler.reading import has_capability
from profiler.signals import AWAITED, Signals, exit_code

_LIBC = ctypes.CDLL(None, use_errno=True)

_CLONE_NEWNS = 0x00020000
_CLONE_NEWIPC = 0x08000000
_CLONE_NEWUSER = 0x10000000
_CLONE_NEWPID = 0x20000000
_CLONE_NEWNET = 0x40000000
_SHARED = Path("/dev/shm")
_MS_NOSUID = 2
_MS_NODEV = 4
_MS_NOEXEC = 8
_SIOCSIFFLAGS = 0x8914
_IFF_UP = 1
_MS_BIND = 4096
_MS_REC = 16384
_MS_PRIVATE = 1 << 18
_AT_FDCWD = -100
_AT_RECURSIVE = 0x8000
_MOUNT_ATTR_RDONLY = 1
_SYS_MOUNT_SETATTR = 442  # the same on every architecture
_PR_SET_PDEATHSIG = 1
_CAP_SYS_ADMIN = 21

MOST_ENTRIES = 10_000
"""Maximum entries of a covered folder that are checked for other owners."""
MOST_BYTES = 512 << 20
"""Maximum bytes that an ordinary user's trial copies of files of other owners or groups in a covered folder."""

GRACE = 10.0
"""Seconds that the processes inside have to end by themselves once nobody waits for them."""

REMEDY = (
    "Trials isolate your files with namespaces, which need Linux 5.12 or newer, and root or permission to create user "
    "namespaces. Without them, use --in-place: files that trials write then stay."
)


_REASONS = {
    errno.ENOSYS: "the kernel is too old",
    errno.ENOSPC: "the limit on namespaces or mounts is reached (sysctl user.max_*_namespaces, fs.mount-max)",
}


def enter(scratch: Path, covered: Sequence[Path], writable: Sequence[Path], *, network: bool = False) -> None:
    """Move this process, which must have one thread, and its future children into such a view; there is no way back.

    Returns in a new process, the second of its PID namespace. The calling process stays outside, passes signals on and
    raises SystemExit with the exit status of the new one, once the whole namespace has ended. When the caller's parent
    ends, the new process gets SIGTERM, and SIGKILL GRACE seconds later. The working directory stays the same.

    Args:
        scratch: Folder for what is written into the `covered` folders; in none of them.
        covered: Folders into which writes seem to work.
        writable: Folders that stay writable; none of them contains a covered one.
        network: Whether the network is as outside.

    Raises:
        ProfilerError: the system does not allow it.
    """
    parent = os.getppid()
    cwd = Path.cwd()
    scratch = scratch.resolve()
    covered = [path.resolve() for path in covered]
    writable = _outermost(path.resolve() for path in [*writable, scratch])
    for cover in covered:
        if scratch.is_relative_to(cover) or _within(cover, writable):
            raise ProfilerError(f"Writes into {cover} cannot be isolated.", "Choose another folder.")
    mount_points = [path for path in _mount_points() if any(cover in path.parents for cover in covered)]
    shared = _SHARED.is_dir() and not any(path.is_relative_to(_SHARED) for path in (*covered, *writable))
    covered = _outermost(covered if shared or not _SHARED.is_dir() else [*covered, _SHARED])
    try:
        privileged = has_capability(_CAP_SYS_ADMIN)  # to make namespaces and mounts without a user namespace
        if mount_points and not privileged:
            raise ProfilerError(
                f"A filesystem is mounted at {mount_points[0]}: only root can isolate writes around it.",
                "Unmount it, or use --in-place: files that trials write then stay.",
            )
        uppers = [_upper(number, path, scratch, copy=not privileged) for number, path in enumerate(covered)]
        _unshare(network, privileged)
        _mount(None, "/", None, _MS_REC | _MS_PRIVATE)
        for path in [*writable, *(Path(name) for name in ("/dev", "/proc", "/sys") if Path(name).is_dir())]:
            _mount(path, path, None, _MS_BIND | _MS_REC)
        handles = [os.open(path, os.O_PATH | os.O_DIRECTORY) for path in writable]
        mounts_below = [
            (path, handle) for path in mount_points if not _within(path, writable) and (handle := _opened(path))
        ]
        _set_read_only(Path("/"), True)
        for path in (*writable, Path("/dev"), Path("/proc")):
            _set_read_only(path, False)
        if shared:
            _mount("tmpfs", _SHARED, "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=1777")
        for path, upper in zip(covered, uppers, strict=True):
            _cover(path, path, upper, "" if privileged else ",userxattr")
        for number, (path, handle) in enumerate(mounts_below):
            _restore(path, handle, _upper(len(covered) + number, path, scratch))
            os.close(handle)
        for path, handle in zip(writable, handles, strict=True):
            if _within(path, covered):  # the cover hides it
                _mount(f"/proc/self/fd/{handle}", path, None, _MS_BIND | _MS_REC)
            os.close(handle)
        os.chdir(cwd)
        _continue_inside(parent)
    except OSError as error:
        raise ProfilerError(f"Trials cannot be sandboxed on this system: {error.strerror}.", REMEDY) from None


def _unshare(network: bool, privileged: bool) -> None:
    user, group = os.getuid(), os.getgid()
    kinds = _CLONE_NEWNS | _CLONE_NEWIPC | _CLONE_NEWPID | (0 if network else _CLONE_NEWNET)
    _call(_LIBC.unshare, kinds | (0 if privileged else _CLONE_NEWUSER))
    if not privileged:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    if not network:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:  # netdevice(7)
            fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _IFF_UP))


def _upper(number: int, path: Path, scratch: Path, copy: bool = False) -> Path:
    """Create the folder for what is written into a covered one."""
    upper = scratch / f"written-{number}"
    upper.mkdir(exist_ok=True)
    (scratch / f".work-{number}").mkdir(exist_ok=True)
    if copy:
        _copy_unmapped(path, upper)
    return upper


def _cover(lower: Path | str, path: Path, upper: Path, options: str = "") -> None:
    """Mount a writable layer over `lower` at `path`."""
    work = upper.with_name(upper.name.replace("written", ".work"))
    layers = f"lowerdir={_quoted(lower)},upperdir={_quoted(upper)},workdir={_quoted(work)}"
    _mount("overlay", path, "overlay", 0, layers + options)


def _restore(path: Path, handle: int, upper: Path) -> None:
    """Mount a filesystem below a covered folder again: with its own layer, else read-only."""
    lower = f"/proc/self/fd/{handle}"
    if path.is_dir():
        with contextlib.suppress(OSError):  # not every filesystem can be a layer
            return _cover(lower, path, upper)
    if path.exists():
        _mount(lower, path, None, _MS_BIND)


def _mount_points() -> list[Path]:
    """Return the mount points, outer ones first."""
    lines = Path("/proc/self/mountinfo").read_bytes().splitlines()
    names = {re.sub(rb"\\([0-7]{3})", lambda code: bytes([int(code[1], 8)]), line.split()[4]) for line in lines}
    return sorted(Path(os.fsdecode(name)) for name in names)


def _opened(path: Path) -> int | None:
    """Return a handle of a mount point; None if access is denied, e.g. to another user's FUSE mount."""
    try:
        return os.open(path, os.O_PATH)
    except OSError:
        return None


def _copy_unmapped(lower: Path, upper: Path) -> None:
    """Copy files and (empty) folders of other owners or groups, which overlayfs cannot copy on a write.

    An ordinary user's namespace maps one user and one group. overlayfs keeps any other owner in its copy, which fails
    with EOVERFLOW, also for the user's own files in a setgid folder of a supplementary group. Checks MOST_ENTRIES,
    upper levels first, and copies up to MOST_BYTES, small files first.
    """
    owner = os.getuid(), os.getgid()
    files: list[tuple[int, Path]] = []
    folders, entry_count = [lower], 0
    while folders and entry_count < MOST_ENTRIES:
        folder = folders.pop(0)
        try:
            entries = list(os.scandir(folder))
        except OSError:
            continue
        entry_count += len(entries)
        for entry in entries:
            with contextlib.suppress(OSError):
                path, status = Path(entry.path), entry.stat(follow_symlinks=False)
                is_unmapped = (status.st_uid, status.st_gid) != owner and os.access(path, os.W_OK)
                if stat.S_ISDIR(status.st_mode):
                    folders.append(path)
                    if is_unmapped:
                        _make_folders(lower, upper, path)
                elif is_unmapped and stat.S_ISREG(status.st_mode):
                    files.append((status.st_size, path))
    bytes_left = MOST_BYTES
    for size, path in sorted(files):
        bytes_left -= size
        if bytes_left < 0:
            break
        with contextlib.suppress(OSError):
            _make_folders(lower, upper, path.parent)
            shutil.copy2(path, upper / path.relative_to(lower))


def _make_folders(lower: Path, upper: Path, folder: Path) -> None:
    """Make a folder and its parents in the upper layer. The lower layer's contents show through."""
    for path in reversed([folder, *folder.parents]):
        if path != lower and path.is_relative_to(lower):
            (upper / path.relative_to(lower)).mkdir(
                mode=stat.S_IMODE(path.stat().st_mode) & 0o777 | 0o700, exist_ok=True
            )


def _continue_inside(parent: int) -> None:
    """Return in a new process of the PID namespace, under an init process that reaps orphans.

    The namespace ends with its init process, and this process ends with both.
    """
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, AWAITED)
    end_with_parent(signal.SIGTERM)
    if os.getppid() != parent:  # the parent ended before it was watched
        raise SystemExit(128 + signal.SIGTERM)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    closed_at_end, write_end = os.pipe()
    if init := os.fork():
        raise SystemExit(_accompany(init, parent))
    os.close(write_end)
    os.setsid()  # kill(0, ...) must not reach the process outside
    end_with_parent(signal.SIGKILL)
    if select.select([closed_at_end], [], [], 0)[0]:
        os._exit(128 + signal.SIGTERM)
    os.close(closed_at_end)
    _mount_proc()
    if child := os.fork():
        os._exit(_accompany(child))
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def end_with_parent(number: int) -> None:
    """Have the kernel send this process a signal when its parent ends. Entering a user namespace undoes it."""
    _call(_LIBC.prctl, _PR_SET_PDEATHSIG, number)


def _accompany(pid: int, parent: int | None = None) -> int:
    """Pass blocked signals on to a child, reap every child, and return its exit status as a shell shows it.

    Once `parent` has ended, which SIGTERM announces, the child has GRACE seconds left.
    """
    signals = Signals(AWAITED)
    killed_at = None
    while True:
        info = signal.sigwaitinfo(AWAITED) if killed_at is None else signals.next(GRACE / 10)
        if info is not None and info.si_signo != signal.SIGCHLD:
            os.kill(pid, info.si_signo)
        while (result := os.waitpid(-1, os.WNOHANG))[0]:
            if result[0] == pid:
                return exit_code(result[1])
        if parent is not None and killed_at is None and os.getppid() != parent:
            killed_at = time.monotonic() + GRACE
        if killed_at is not None and time.monotonic() > killed_at:
            os.kill(pid, signal.SIGKILL)


def _mount_proc() -> None:
    """Mount the /proc of this PID namespace, with the machine's own settings read-only."""
    try:
        _mount("proc", "/proc", "proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC)
    except PermissionError:
        raise ProfilerError(
            "Trials cannot be sandboxed on this system: parts of /proc are hidden, as in most containers, so the "
            "kernel allows no /proc in a new PID namespace.",
            REMEDY,
        ) from None
    for path in map(Path, ("/proc/sys", "/proc/sysrq-trigger")):
        if path.exists():
            _mount(path, path, None, _MS_BIND)
            _set_read_only(path, True)


def _mount(
    source: Path | str | None, target: Path | str, kind: str | None, flags: int, data: str | None = None
) -> None:
    arguments = [None if text is None else os.fsencode(text) for text in (source, target, kind)]
    _call(_LIBC.mount, *arguments, ctypes.c_ulong(flags), None if data is None else os.fsencode(data))


def _set_read_only(path: Path, on: bool) -> None:
    # struct mount_attr: attributes to set, attributes to clear, propagation, user namespace
    attributes = struct.pack("4Q", *((_MOUNT_ATTR_RDONLY, 0) if on else (0, _MOUNT_ATTR_RDONLY)), 0, 0)
    _call(
        _LIBC.syscall,
        ctypes.c_long(_SYS_MOUNT_SETATTR),
        ctypes.c_int(_AT_FDCWD),
        os.fsencode(path),
        ctypes.c_uint(_AT_RECURSIVE),
        attributes,
        ctypes.c_size_t(len(attributes)),
    )


def _call(function: Callable[..., int], *arguments: object) -> None:
    if function(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, _REASONS.get(number, os.strerror(number)))


def _quoted(path: Path | str) -> str:
    """Return the path quoted for overlayfs, which separates options by commas and layers by colons."""
    return "".join("\\" + letter if letter in "\\,:" else letter for letter in str(path))


def _within(path: Path, folders: Iterable[Path]) -> bool:
    return any(path.is_relative_to(folder) for folder in folders)


def _outermost(paths: Iterable[Path]) -> list[Path]:
    """Return each path once, without those inside another."""
    outermost: list[Path] = []
    for path in sorted(set(paths)):
        if not _within(path, outermost):
            outermost.append(path)
    return outermost
