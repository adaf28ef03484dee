"""The training process may run on a NUMA node that is not its GPU's.

On a machine with several NUMA nodes, a GPU is attached to one of them. If the process runs on another node, every copy
and every launch crosses the link between the nodes. Memory belongs to the node of the thread that first writes to it.

Wrong when: other ranks use all cores of the GPU's node, or data loading needs more cores than the node has.

Source: PyTorch Performance Tuning Guide, https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html
Source: Linux: sysfs, devices/system/node, https://docs.kernel.org/admin-guide/mm/numaperf.html
"""

from advisor.metrics import Metrics, Threshold, gpu, numa, settings, step
from advisor.models.effects import in_turn, remove, remove_launch_idle
from advisor.rules.base import Advice, Area, Confidence, Evidence, Rule, bash, evidence, measure
from advisor.units import share

RULE = Rule("Bind to the GPU's NUMA node", Area.VALIDITY, Confidence.HEURISTIC)

MIN_NODES = Threshold(2, "With one node, all cores are equally close to the GPU.")

NEAR = Threshold(1.0, "A process that may run on another node does so as soon as its own node is busy.")

MIN_H2D = Threshold(
    0.05, "At most a tenth of the copying time can be saved; below this share, that is half a percent of the step."
)

MIN_LAUNCH_BOUND = Threshold(
    0.15, "Below this, saving a tenth of the waiting for launches is not visible in the step (assumption)."
)

# Share of host work and copies that is saved: low, expected, high (assumption; 0 if memory is on the right node by
# chance).
FASTER = (0.0, 0.03, 0.10)


def when(m: Metrics) -> Evidence | None:
    """If the machine has several NUMA nodes, the process may run on cores outside its GPU's node, and copies to
    the GPU take at least 5 % of the step or the GPU waits for launches for at least 15 % of the time,
    """
    nodes = measure(m, numa.numa_nodes, ">=", MIN_NODES)
    if not nodes.holds or m[numa.near_cores] >= m[NEAR]:
        return None
    reasons = ((step.h2d_fraction, MIN_H2D), (gpu.launch_bound_index, MIN_LAUNCH_BOUND))
    for metric, limit in reasons:
        if m.get(metric) is not None and (reason := measure(m, metric, ">=", limit)).holds:
            near_cores = measure(m, numa.near_cores, "<", NEAR)
            return evidence(nodes, near_cores, reason, note=f"the GPU is on node {m[numa.gpu_node]}")
    for metric, _ in reasons:
        m[metric]  # raises Missing if not measured: it may show what the other does not
    return None


def then(m: Metrics, found: Evidence) -> Advice:
    """then bind the process and its memory to the node of its GPU."""
    node = m[numa.gpu_node]
    single_command = f"numactl --cpunodebind={node} --membind={node} python train.py\n"
    launch_command = "torchrun --numa-binding=node --nproc-per-node=N train.py  # torch 2.9 or newer\n"
    return Advice(
        then=f"Bind the process to NUMA node {node}, which holds its GPU: {share(1 - m[numa.near_cores])} of the cores "
        "it may run on belong to other nodes.",
        changes=(bash(launch_command if (m.get(settings.world_size) or 1) > 1 else single_command),),
        basis="Copies, loading and launches get 0, 3 or 10 % faster.",
        effect=in_turn(remove("h2d", "loader_overhead", "other", shares=FASTER), remove_launch_idle(FASTER)),
        memory=0,
        risk="Low: with --membind, allocations beyond the node's own memory fail; --preferred allows them.",
    )
