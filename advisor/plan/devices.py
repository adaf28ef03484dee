"""GPUs by name: how much memory their driver reports, and what their data sheets promise."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass

from advisor.models.gpus import Peaks, peaks
from profiler.errors import ProfilerError

MIB = 1024**2

# MiB that NVML reports; other drivers tell up to 2 % less. Of the H200, H100, A100, A10, L40S, L4 and T4 as Belotti
# lists them, "Why does an NVIDIA H100 80GB card offer 85.52 GB?", 2024: cards whose ECC bits lie in the same memory
# report less than their name says. Of the others as nvidia-smi and amd-smi print them.
_MEMORY = {
    "V100 16GB": 16384,
    "V100 32GB": 32768,
    "T4": 15360,
    "A10": 23028,
    "A100 40GB": 40960,
    "A100 80GB": 81920,
    "L4": 23034,
    "L40S": 46068,
    "RTX 3090": 24576,
    "RTX 4090": 24564,
    "RTX 5090": 32607,
    "H100 PCIe": 81559,
    "H100": 81559,
    "H200": 143771,
    "B200": 183359,
    "MI300X": 196592,
}

NAMES = tuple(_MEMORY)


@dataclass(frozen=True, slots=True)
class Device:
    """A kind of GPU."""

    name: str
    memory: float
    """Bytes."""
    peaks: Peaks | None = None
    """None where only its memory was given."""


def device(name: str) -> Device:
    """By its name in any spelling: "a100-80gb", "NVIDIA H100 80GB HBM3".

    Raises:
        ProfilerError: the name is not in the table, or fits boards of several sizes.
    """
    words = _words(name)
    fitting = [known for known in NAMES if _words(known) <= words]
    if fitting and peaks(" ".join(words)) is not None:  # which knows slower boards of the same name
        found = max(fitting, key=lambda known: len(_words(known)))
        return Device(found, float(_MEMORY[found] * MIB), peaks(found))
    sizes = [known for known in NAMES if words and words < _words(known)]
    if sizes:
        raise ProfilerError(f"{name!r} is sold in several kinds.", f"Say which one: {', '.join(sizes)}.")
    raise ProfilerError(f"No GPU called {name!r} is in our table.", _remedy(name))


def _words(name: str) -> set[str]:
    """Of "RTX4090", "rtx-4090" and "RTX 4090" the same ones."""
    apart = re.sub(r"(rtx)(\d)", r"\1 \2", name.lower().replace("_", "-"))
    words = set(re.findall(r"[a-z0-9]+", apart))
    return words | {"rtx"} if words & {"3090", "4090", "5090"} else words


def _remedy(name: str) -> str:
    plain = {known.lower().replace(" ", ""): known for known in NAMES}
    near = difflib.get_close_matches(re.sub(r"[^a-z0-9]", "", name.lower()), plain, n=1, cutoff=0.5)
    suggestion = f"Did you mean {plain[near[0]]}? " if near else f"Known are: {', '.join(NAMES)}. "
    return f"{suggestion}Any GPU can be given by its memory: --gpu-memory 24GB."
