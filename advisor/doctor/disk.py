"""Check where runs are written, and how fast the data can be read."""

import contextlib
import itertools
import os
import random
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from advisor.doctor.finding import CheckResult, fix, ok, warning
from advisor.units import digits, size
from profiler.recorder.folder import DEFAULT
from profiler.store.remote import REMOTE, filesystem

ROOM = 1 << 30
"""Free bytes below which a long run with its windows may not fit (assumption)."""

LONGEST = 3.0
"""Longest time to read, in seconds."""
MOST = 512 << 20
BLOCK = 1 << 20
FILES = 5000
"""Number of files from which the sample to read is drawn."""

SLOW = 150e6
"""Bytes/s below which reading is slow.

A single hard disk reads sequentially at this rate; eight 100 kB images per step need it at 200 steps/s.
"""
SMALL = 1 << 20
FEW_FILES = 500.0
"""Small files read per second below which packing helps. Assumption: a step of 0.1 s with 64 of them."""


def findings(here: Path, data: Path | None) -> Iterator[CheckResult]:
    """Yield the findings on the folder of runs, and on the data folder if one is given."""
    yield _runs(here)
    if data is not None:
        yield of_data(data)


def _runs(here: Path) -> CheckResult:
    runs = here / DEFAULT
    place = runs if runs.is_dir() else here
    if not os.access(place, os.W_OK):
        return warning(
            "run folder", f"{place} cannot be written: runs go to a temporary folder.", "Name another with --out."
        )
    free = shutil.disk_usage(place).free
    if free < ROOM:
        return warning(
            "run folder", f"{size(free)} free in {place}.", "Free disk space, or name another folder with --out."
        )
    return ok("run folder", f"{runs}, {size(free)} free")


def of_data(data: Path) -> CheckResult:
    """Read some of the data for a few seconds, bypassing the kernel's cache if it can be dropped."""
    if not data.exists():
        return fix("data", f"There is no {data}.", "Give the path that the training reads: --data PATH.")
    try:
        files, volume, seconds = read(data)
    except OSError as error:
        return fix("data", f"{data} cannot be read: {error.strerror or error}.", "Check its permissions.")
    if not volume or not seconds:
        return warning("data", f"{data} contains no non-empty file.", "Give the path that the training reads.")
    rate, file_size, kind = volume / seconds, volume / files, filesystem(data) or "an unknown filesystem"
    sentence = f"{size(rate)}/s, {digits(files / seconds)} files/s of {size(file_size)}, on {kind}, by one reader"
    remote = REMOTE.fullmatch(kind) is not None
    if file_size < SMALL and files / seconds < FEW_FILES:
        return warning(
            "data",
            f"{sentence}: reading small files is slow.",
            "Pack them (WebDataset, Parquet), or copy them to a local disk.",
        )
    if file_size >= SMALL and rate < SLOW:
        remedy = "Copy the data to a local disk." if remote else "Move the data to an SSD, or read with more workers."
        return warning("data", f"{sentence}: slow.", remedy)
    return ok("data", sentence)


def read(data: Path, longest: float = LONGEST) -> tuple[int, int, float]:
    """Read files in random order, whole or until time or volume runs out; return files, bytes and seconds.

    Raises:
        OSError: none of them can be read.
    """
    paths = (Path(root, name) for root, _, names in os.walk(data) for name in names)
    files = [data] if data.is_file() else list(itertools.islice(filter(Path.is_file, paths), FILES))
    random.Random(0).shuffle(files)
    file_count, volume, begin, failure = 0, 0, time.perf_counter(), None
    for file in files:
        try:
            volume += _whole(file, begin + longest, MOST - volume)
        except OSError as error:
            failure = error
            continue
        file_count += 1
        if time.perf_counter() - begin > longest or volume >= MOST:
            break
    if failure is not None and not file_count:
        raise failure
    return file_count, volume, time.perf_counter() - begin


def _whole(path: Path, until: float, most: int) -> int:
    volume = 0
    handle = os.open(path, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError, AttributeError):  # cached data would hide the disk's speed
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        while volume < most and (block := os.read(handle, BLOCK)):
            volume += len(block)
            if time.perf_counter() > until:
                break
    finally:
        os.close(handle)
    return volume
