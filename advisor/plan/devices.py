"""Look GPUs up by name: how much memory their driver reports, and what their data sheets promise."""

import difflib
import re
from dataclasses import dataclass

from advisor.models.gpus import BOARDS, Peaks, peaks
from profiler.errors import ProfilerError

MIB = 1024**2

_MEMORY = {name: mib for board in BOARDS for name, mib in board.memory.items()}

NAMES = tuple(_MEMORY)


@dataclass(frozen=True, slots=True)
class GpuKind:
    """A kind of GPU: its memory and, where known, its peak rates."""

    name: str
    memory: float
    """Memory in bytes."""
    peaks: Peaks | None = None
    """Peak rates; None if only the memory was given."""


def device(name: str) -> GpuKind:
    """Return the GPU by its name in any spelling: "a100-80gb", "NVIDIA H100 80GB HBM3".

    Raises:
        ProfilerError: the name is not in the table, or fits boards of several sizes.
    """
    words = _words(name)
    fitting = [known for known in NAMES if _words(known) <= words]
    if fitting and peaks(" ".join(words)) is not None:  # which knows slower boards of the same name
        found = max(fitting, key=lambda known: len(_words(known)))
        return GpuKind(found, float(_MEMORY[found] * MIB), peaks(found))
    sizes = sorted(known for known in NAMES if words and words < _words(known))
    if sizes:
        raise ProfilerError(f"{name!r} is sold in several kinds.", f"Say which one: {', '.join(sizes)}.")
    raise ProfilerError(f"{name!r} is not in the table of GPUs.", _remedy(name))


def _words(name: str) -> set[str]:
    """Return the words of a name; "RTX4090", "rtx-4090" and "RTX 4090" have the same ones."""
    apart = re.sub(r"(rtx)(\d)", r"\1 \2", name.lower().replace("_", "-"))
    words = set(re.findall(r"[a-z0-9]+", apart))
    return words | {"rtx"} if any(re.fullmatch(r"[2-5]0[6-9]0", word) for word in words) else words


def _remedy(name: str) -> str:
    plain = {known.lower().replace(" ", ""): known for known in NAMES}
    near = difflib.get_close_matches(re.sub(r"[^a-z0-9]", "", name.lower()), plain, n=1, cutoff=0.5)
    suggestion = f"Did you mean {plain[near[0]]}? " if near else f"Known are: {', '.join(NAMES)}. "
    return f"{suggestion}Any GPU can be given by its memory: --gpu-memory 24GB."
