"""Whether a training process runs near its GPU: machines of several NUMA nodes."""

from __future__ import annotations

from advisor.metrics.base import Metrics, Missing, Need, metric
from advisor.metrics.cores import cores
from advisor.metrics.host import run
from advisor.metrics.memory import memory_peak
from advisor.metrics.settings import on_cpu, primary_rank
from profiler.schema import Gpu


@metric("count", "NUMA nodes with cores")
def numa_nodes(m: Metrics) -> int:
    """NUMA nodes with cores, of the machine of the primary rank: a socket is one or several."""
    if not m[run].numa_nodes:
        raise Missing("The machine's NUMA nodes are unknown", "Record on Linux, with /sys to be seen.")
    return len(m[run].numa_nodes)


@metric(None)
def gpu_node(m: Metrics) -> int:
    """The NUMA node of the primary rank's GPU."""
    nodes = {gpu.numa_node for gpu in _gpus(m)}
    node = nodes.pop() if len(nodes) == 1 else None
    if node is None:
        raise Missing(
            "The NUMA node of the GPU is unknown", "Record on a machine (few virtual ones) that tells it under /sys."
        )
    return node


@metric("1", "share of the process's cores near its GPU")
def near_cores(m: Metrics) -> float:
    """Share of the cores that the primary rank may run on that are of its GPU's NUMA node."""
    listed = m[primary_rank].process.cpus
    mine = cores(listed) if listed else None
    near = cores(m[run].numa_nodes.get(m[gpu_node], ""))
    if not mine or not near:
        raise Missing(
            "The cores of the process, or of its GPU's NUMA node, are unknown",
            "Record on Linux, from the program's start.",
        )
    return len(mine & near) / len(mine)


def _gpus(m: Metrics) -> tuple[Gpu, ...]:
    """Of the device the rank holds memory on; else all there are, which may agree."""
    if m[on_cpu]:
        raise Missing("The program does not train on a GPU", "Nothing: on a CPU there is none to be near.", Need.GPU)
    peak = m.get(memory_peak)
    uuids = {device.uuid for device in m[primary_rank].devices if peak is not None and device.id == peak.id}
    return tuple(gpu for gpu in m.profile.gpus if gpu.uuid in uuids) or m.profile.gpus
