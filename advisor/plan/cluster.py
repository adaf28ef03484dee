"""The GPUs that a training run is planned for, by name or memory, and the machines they are in."""

import difflib
import math
import re
from dataclasses import dataclass

from advisor.models.gpus import BOARDS, Peaks, peaks
from advisor.models.memory import FILL
from advisor.models.sharding import HOST_MEMORY, PCIE
from profiler.errors import ProfilerError

# Default number of GPUs per node, in a cluster with more GPUs.
PER_NODE = 8

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Equal GPUs in equal nodes. Sizes in bytes, rates in bytes/s."""

    gpus: int = 1
    per_node: int | None = None
    """GPUs of a node; None: as many as there are, up to eight."""
    device: GpuKind
    reserve: float = 1 - FILL
    """Share of a GPU to keep free: CUDA context, communication buffers, fragmentation, peaks."""
    host: float | None = None
    """Bytes of a node's host memory; None if not known."""
    pcie: float = PCIE
    """PCIe bandwidth to each GPU."""
    host_bandwidth: float = HOST_MEMORY
    """Bandwidth of a node's memory, which its GPUs share."""

    def __post_init__(self) -> None:
        if not 0 <= self.reserve < 1:
            raise ProfilerError(
                f"A reserve of {self.reserve:.0%} leaves no memory for training.",
                "Give a share below 100%: --reserve 8%.",
            )
        if self.gpus % self.in_node:
            raise ProfilerError(
                f"{self.gpus} GPUs cannot be divided into nodes of {self.in_node}.",
                f"Set the number of GPUs per node: --gpus-per-node {math.gcd(self.gpus, self.in_node)}.",
            )

    @property
    def in_node(self) -> int:
        """Return the number of GPUs in one node."""
        return min(self.gpus, self.per_node or PER_NODE)

    @property
    def nodes(self) -> int:
        """Return the number of nodes."""
        return self.gpus // self.in_node

    @property
    def budget(self) -> float:
        """Return the bytes of one GPU that may be filled."""
        return self.device.memory * (1 - self.reserve)


def device(name: str) -> GpuKind:
    """Return the GPU by its name in any spelling: "a100-80gb", "NVIDIA H100 80GB HBM3".

    Raises:
        ProfilerError: the name is not in the table, or matches boards of several sizes.
    """
    words = _words(name)
    fitting_names = [gpu_name for gpu_name in NAMES if _words(gpu_name) <= words]
    if fitting_names and peaks(" ".join(words)) is not None:  # None for slower boards of the same name
        match = max(fitting_names, key=lambda gpu_name: len(_words(gpu_name)))
        return GpuKind(match, float(_MEMORY[match] * MIB), peaks(match))
    sizes = sorted(gpu_name for gpu_name in NAMES if words and words < _words(gpu_name))
    if sizes:
        raise ProfilerError(f"{name!r} matches several GPUs.", f"Choose one: {', '.join(sizes)}.")
    raise ProfilerError(f"{name!r} is not in the table of GPUs.", _remedy(name))


def _words(name: str) -> set[str]:
    """Return the words of a name; "RTX4090", "rtx-4090" and "RTX 4090" have the same ones."""
    normalized = re.sub(r"(rtx)(\d)", r"\1 \2", name.lower().replace("_", "-"))
    words = set(re.findall(r"[a-z0-9]+", normalized))
    return words | {"rtx"} if any(re.fullmatch(r"[2-5]0[6-9]0", word) for word in words) else words


def _remedy(name: str) -> str:
    by_spelling = {gpu_name.lower().replace(" ", ""): gpu_name for gpu_name in NAMES}
    matches = difflib.get_close_matches(re.sub(r"[^a-z0-9]", "", name.lower()), by_spelling, n=1, cutoff=0.5)
    suggestion = f"Did you mean {by_spelling[matches[0]]}? " if matches else f"Known are: {', '.join(NAMES)}. "
    return f"{suggestion}Any GPU can be given by its memory: --gpu-memory 24GB."
