"""Read a command's input: the folder of a recorded run, or traces of torch.profiler."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from profiler.printable import say

if TYPE_CHECKING:
    from advisor.runs.profile import Profile

OF_A_RUN = ("run-*.db", "recording*.json")
"""Files that a run folder contains from the start; a folder without them may contain traces."""


def is_recorded(path: Path) -> bool:
    """Return whether the path is the folder of a recorded run."""
    return path.is_dir() and any(any(path.glob(name)) for name in OF_A_RUN)


def recording(folder: Path) -> Profile:
    """Return the profile of a recorded run; finish a recording that was cut off.

    Raises:
        ProfilerError: there is no run in the folder, or none that can be read.
    """
    from advisor.runs.load import load
    from profiler.recorder.record import finish_orphan

    if note := finish_orphan(folder):
        say(note)
    return load(folder)


def read(paths: Sequence[Path]) -> Profile:
    """Return the profile of one folder, or of files of traces.

    Raises:
        ProfilerError: there is neither a run nor a trace, or none that can be read.
    """
    from advisor.runs import traces

    first = paths[0]
    if is_recorded(first) or not first.exists():
        return recording(first)
    if first.is_dir():
        paths, note = traces.in_folder(first)
        if note:
            say(note)
    return traces.load(paths)
