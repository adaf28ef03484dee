"""Find functions of a running program in the symbol tables of its libraries and executable."""

import re
import struct
from collections.abc import Iterator
from pathlib import Path

from profiler.errors import ProfilerError

# The System V ABI, "Object Files": the headers of a 64-bit little-endian ELF file.
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_LOAD, _DYNSYM = 1, 11

_MAPPING = re.compile(r"([0-9a-f]+)-[0-9a-f]+ \S+ ([0-9a-f]+) \S+ \d+ +(/.*)")

PYTHON = ("Py_AddPendingCall", "PyRun_SimpleString")
LIBC = ("mmap", "munmap")


def addresses(pid: int) -> dict[str, int]:
    """Return the addresses of the functions of PYTHON and LIBC in a process.

    Raises:
        ProfilerError: the process runs no CPython whose functions can be found.
    """
    mappings = dict(_first_mappings(pid))
    libraries = [path for path in mappings if re.search(r"/libpython3[.\d]*[a-z]*\.so", path)]
    python = _found(pid, mappings, [*libraries, _executable(pid)], PYTHON)
    libc = _found(pid, mappings, [path for path in mappings if re.search(r"/(libc[.-]|ld-musl)[^/]*so", path)], LIBC)
    if python is None or libc is None:
        raise ProfilerError(
            f"Process {pid} is not a Python program that can be attached to.", "Give the PID of a Python program."
        )
    return python | libc


def _first_mappings(pid: int) -> Iterator[tuple[str, int]]:
    """Yield each file that is mapped from its beginning, and its address."""
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        match = _MAPPING.fullmatch(line)
        if match and int(match[2], 16) == 0:
            yield match[3].removesuffix(" (deleted)"), int(match[1], 16)


def _executable(pid: int) -> str:
    return str(Path(f"/proc/{pid}/exe").readlink()).removesuffix(" (deleted)")


def _found(pid: int, mapped: dict[str, int], paths: list[str], names: tuple[str, ...]) -> dict[str, int] | None:
    """Return the addresses of `names` in the first of these files that has them all; None if none does."""
    for path in paths:
        if path not in mapped:
            continue
        try:
            # /proc/PID/exe is the executable that runs, even if the file has been replaced since.
            data = Path(f"/proc/{pid}/exe" if path == _executable(pid) else path).read_bytes()
            offsets = _symbols(data, names)
        except (OSError, struct.error):
            continue
        if len(offsets) == len(names):
            return {name: mapped[path] + offset for name, offset in offsets.items()}
    return None


def _symbols(data: bytes, names: tuple[str, ...]) -> dict[str, int]:
    """Return the offsets of exported functions from the address where the file is mapped."""
    identity, _, _, _, _, segments, sections, _, _, segment_size, segment_count, size, count, _ = _HEADER.unpack_from(
        data
    )
    if identity[:6] != b"\x7fELF\x02\x01":
        return {}
    loads = [_SEGMENT.unpack_from(data, segments + number * segment_size) for number in range(segment_count)]
    base = next(load[3] - load[2] for load in loads if load[0] == _LOAD)
    tables = [_SECTION.unpack_from(data, sections + number * size) for number in range(count)]
    names_by_bytes = {name.encode(): name for name in names}
    offsets = {}
    for table in tables:
        if table[1] != _DYNSYM:
            continue
        strings = tables[table[6]][4]
        for name, _, _, section, value, _ in _SYMBOL.iter_unpack(data[table[4] : table[4] + table[5]]):
            if section == 0:  # defined in another file
                continue
            text = data[strings + name : data.index(b"\0", strings + name)]
            if text in names_by_bytes:
                offsets[names_by_bytes[text]] = value - base
    return offsets
