from gpu_runs import NO_GPU, cpu_metrics, gpu_metrics
from harness import DoesNotFire, Fires, NotMeasured

from advisor.metrics.base import Missing
from advisor.metrics.gpu import launch_bound_index
from advisor.metrics.numa import gpu_node, near_cores, numa_nodes
from advisor.metrics.settings import world_size
from advisor.metrics.step import h2d_fraction
from advisor.models.state import State

UNKNOWN = Missing("It is unknown", "Record on Linux.")


def far(nodes=2, near=0.5, copies=0.08, late=0.02, world=1):
    """Return metrics of a GPU on the second node; the process may run on both."""
    machine = {numa_nodes: nodes, gpu_node: 1, near_cores: near, world_size: world}
    return gpu_metrics({**machine, h2d_fraction: copies, launch_bound_index: late})


CASES = [
    Fires(
        "a process that may run on both nodes and copies a lot",
        far(),
        code="numactl --cpunodebind=1 --membind=1",
        then="50% of the cores",
        note="node 1",
        state=State(phases={"h2d": 0.2, "loader_overhead": 0.1, "forward": 0.5, "other": 0.2}, launch_idle=0.1),
        removed=(0.0, 0.5 * 0.03 + 0.1 * 0.03, 0.5 * 0.1 + 0.1 * 0.1),
        fault=False,
    ),
    Fires("a process bound to the wrong node", far(near=0.0), then="100% of the cores"),
    Fires(
        "several ranks: their launcher binds them", far(world=8), code="torchrun --numa-binding=node", absent="numactl"
    ),
    Fires("copies just above the limit", far(copies=0.051)),
    DoesNotFire("copies just below the limit", far(copies=0.049)),
    Fires("launch gaps just above the limit", far(copies=0.01, late=0.151)),
    DoesNotFire("launch gaps just below the limit", far(copies=0.01, late=0.149)),
    DoesNotFire("bound to the GPU's node", far(near=1.0)),
    DoesNotFire("one node, and the GPU's node is unknown", far(nodes=1, near=UNKNOWN)),
    NotMeasured("the GPU's node is unknown", far(near=UNKNOWN)),
    NotMeasured("the number of nodes is unknown", far(nodes=UNKNOWN)),
    NotMeasured("launch gaps were not measured, and copies are too few", far(copies=0.01, late=NO_GPU)),
    NotMeasured("no GPU", cpu_metrics({numa_nodes: 2, near_cores: NO_GPU}, phases={})),
]
