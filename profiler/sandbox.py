"""A view of the filesystem in which everything can be read as ever and nothing of the user's can be changed.

What a process and its children write into the folders named `covered` lands in a scratch folder (overlayfs in a mount
namespace of their own; see overlay in the kernel's documentation and mount_setattr(2)); anywhere else writing is
refused as on a read-only filesystem. It takes root, or a kernel that lets users have namespaces (most do).
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from profiler.errors import ProfilerError

_LIBC = ctypes.CDLL(None, use_errno=True)

_CLONE_NEWNS = 0x00020000
_CLONE_NEWUSER = 0x10000000
_MS_BIND = 4096
_MS_REC = 16384
_MS_PRIVATE = 1 << 18
_AT_FDCWD = -100
_AT_RECURSIVE = 0x8000
_MOUNT_ATTR_RDONLY = 1
_SYS_MOUNT_SETATTR = 442  # the same on every architecture

REMEDY = (
    "Trials keep their hands off your files by namespaces of Linux 5.12 or newer, as root or where users may have "
    "them; without, --in-place runs them where you are."
)


class _MountAttributes(ctypes.Structure):
    _fields_ = [
        ("set", ctypes.c_uint64),
        ("clear", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("namespace", ctypes.c_uint64),
    ]


def enter(scratch: Path, covered: Sequence[Path], writable: Sequence[Path]) -> None:
    """Move this process, which must have one thread, and what it will start into such a view; there is no way back.

    `scratch`, in none of the `covered` folders, takes what is written into them; `writable` folders, none of which
    holds a covered one, stay as they are. Its working folder is entered anew. Raises ProfilerError if the system does
    not allow it.
    """
    here = Path.cwd()
    scratch = scratch.resolve()
    covered = [path.resolve() for path in covered]
    writable = _outermost(path.resolve() for path in [*writable, scratch])
    for cover in covered:
        if scratch.is_relative_to(cover) or any(cover.is_relative_to(path) for path in writable):
            raise ProfilerError(f"What is written into {cover} cannot be kept apart.", "Choose another folder.")
    covered = _outermost(covered)
    try:
        layers = _unshare()
        _mount(None, "/", None, _MS_REC | _MS_PRIVATE)
        for path in [*writable, *(Path(name) for name in ("/dev", "/proc", "/sys") if Path(name).is_dir())]:
            _mount(path, path, None, _MS_BIND | _MS_REC)
        kept = [os.open(path, os.O_PATH | os.O_DIRECTORY) for path in writable]
        _set_read_only(Path("/"), True)
        for path in (*writable, Path("/dev"), Path("/proc")):
            _set_read_only(path, False)
        for number, path in enumerate(covered):
            upper, work = scratch / f"written-{number}", scratch / f".work-{number}"
            upper.mkdir(exist_ok=True)
            work.mkdir(exist_ok=True)
            options = f"lowerdir={_quoted(path)},upperdir={_quoted(upper)},workdir={_quoted(work)}{layers}"
            _mount("overlay", path, "overlay", 0, options)
        for path, handle in zip(writable, kept, strict=True):
            if any(path.is_relative_to(cover) for cover in covered):  # the cover hides it
                _mount(f"/proc/self/fd/{handle}", path, None, _MS_BIND | _MS_REC)
            os.close(handle)
        os.chdir(here)
    except OSError as error:
        raise ProfilerError(f"This system has no sandbox for a trial: {error.strerror}.", REMEDY) from None


def _unshare() -> str:
    """A mount namespace, by way of a user namespace where we are not root; what overlayfs has to be told of that."""
    user, group = os.getuid(), os.getgid()
    try:
        _call(_LIBC.unshare, _CLONE_NEWNS)
        return ""
    except PermissionError:
        _call(_LIBC.unshare, _CLONE_NEWNS | _CLONE_NEWUSER)
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
        return ",userxattr"


def _mount(
    source: Path | str | None, target: Path | str, kind: str | None, flags: int, data: str | None = None
) -> None:
    arguments = [None if text is None else os.fsencode(text) for text in (source, target, kind)]
    _call(_LIBC.mount, *arguments, ctypes.c_ulong(flags), None if data is None else os.fsencode(data))


def _set_read_only(path: Path, on: bool) -> None:
    attributes = _MountAttributes(**{"set" if on else "clear": _MOUNT_ATTR_RDONLY})
    size = ctypes.sizeof(attributes)
    _call(
        _LIBC.syscall,
        ctypes.c_long(_SYS_MOUNT_SETATTR),
        ctypes.c_int(_AT_FDCWD),
        os.fsencode(path),
        ctypes.c_uint(_AT_RECURSIVE),
        ctypes.byref(attributes),
        ctypes.c_size_t(size),
    )


def _call(function: Callable[..., int], *arguments: object) -> None:
    if function(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number) if number != errno.ENOSYS else "the kernel is too old")


def _quoted(path: Path) -> str:
    """For overlayfs, whose options are parted by commas and layers by colons."""
    return "".join("\\" + letter if letter in "\\,:" else letter for letter in str(path))


def _outermost(paths: Iterable[Path]) -> list[Path]:
    """Each once, without those inside another."""
    found: list[Path] = []
    for path in sorted(set(paths)):
        if not any(path.is_relative_to(outer) for outer in found):
            found.append(path)
    return found
