"""The GPUs that a training run is planned for, and the machines they are in."""

import math
from dataclasses import dataclass

from advisor.models.memory import FILL
from advisor.models.sharding import PCIE
from advisor.plan.devices import GpuKind
from profiler.errors import ProfilerError

# Bytes/s that a host's memory moves in practice (assumption).
HOST_MEMORY = 80e9

# GPUs in a machine, where there are more of them than that.
PER_NODE = 8


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
                f"{self.gpus} GPUs are not a whole number of nodes of {self.in_node}.",
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
