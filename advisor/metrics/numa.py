"""The placement of a training process relative to its GPU, on machines with several NUMA nodes."""

from advisor.metrics.base import Metrics, Missing, Need, known, metric
from advisor.metrics.host import cores, run
from advisor.metrics.memory import memory_peak
from advisor.metrics.settings import on_cpu, primary_rank
from profiler.schema import Gpu


@metric("count", "NUMA nodes with cores")
def numa_nodes(m: Metrics) -> int:
    """NUMA nodes with cores on the primary rank's machine; a socket has one or more."""
    remedy = "Record on Linux, with a readable /sys."
    return known(len(m[run].numa_nodes) or None, "The machine's NUMA nodes are unknown", remedy)


@metric(None)
def gpu_node(m: Metrics) -> int:
    """NUMA node of the primary rank's GPU."""
    nodes = {gpu.numa_node for gpu in _gpus(m)}
    node = nodes.pop() if len(nodes) == 1 else None
    remedy = "Record on a machine that reports it under /sys (few virtual machines do)."
    return known(node, "The NUMA node of the GPU is unknown", remedy)


@metric("1", "share of the process's cores on its GPU's node")
def near_cores(m: Metrics) -> float:
    """Share of the primary rank's allowed cores that belong to its GPU's NUMA node."""
    cpus = m[primary_rank].process.cpus
    own_cores = cores(cpus) if cpus else None
    node_cores = cores(m[run].numa_nodes.get(m[gpu_node], ""))
    if not own_cores or not node_cores:
        raise Missing(
            "The cores of the process, or of its GPU's NUMA node, are unknown",
            "Record on Linux, from the program's start.",
        )
    return len(own_cores & node_cores) / len(own_cores)


def _gpus(m: Metrics) -> tuple[Gpu, ...]:
    """Return the GPU on which the rank holds memory; if unknown, all GPUs, which may agree on a node."""
    if m[on_cpu]:
        raise Missing("The program does not train on a GPU", "Nothing to do: this matters only on a GPU.", Need.GPU)
    peak = m.get(memory_peak)
    return (m.profile.gpus_of(m[primary_rank], (peak.id,)) if peak else ()) or m.profile.gpus
