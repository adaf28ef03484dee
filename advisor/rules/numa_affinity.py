"""The training process may run far from its GPU.

On a machine of several NUMA nodes a GPU hangs on one of them. From the cores of another, every copy and every launch
goes over the link between them, and memory lies where the thread ran that touched it first.

Wrong when: the cores of the GPU's node are all taken by other ranks, or data loading needs more cores than it has.
"""

from __future__ import annotations

from advisor.metrics.base import Metrics, Threshold
from advisor.metrics.gpu import launch_bound_index
from advisor.metrics.numa import gpu_node, near_cores, numa_nodes
from advisor.metrics.settings import world_size
from advisor.metrics.step import h2d_fraction
from advisor.models.effects import in_turn, remove, remove_launch_idle
from advisor.rules.base import Advice, Change, Confidence, Evidence, Fact, Rule, Source, Tier
from advisor.units import share

MIN_NODES = Threshold(2, "With one node, every core is as near as any other.")

NEAR = Threshold(1.0, "A process that may run elsewhere will, as soon as its node is busy.")

MIN_H2D = Threshold(0.05, "Of less copying a tenth, the most there is to gain, is half a percent of the step.")

MIN_LAUNCH_BOUND = Threshold(0.15, "Of less waiting for launches a tenth does not show in the step (assumption).")

# Share of host work and copies that goes, low, expected, high (assumption; from 0 where memory happens to lie well).
FASTER = (0.0, 0.03, 0.10)


def when(m: Metrics) -> Evidence | None:
    """If the machine has several NUMA nodes, the process may run on cores that are not of its GPU's node, and copies to
    the GPU take 5 % of the step or launches keep it waiting for 15 % of the time,
    """
    count = m[numa_nodes]
    if count < m[MIN_NODES]:
        return None
    near = m[near_cores]
    if near >= m[NEAR]:
        return None
    busy = _busy(m)
    if busy is None:
        return None
    facts = (Fact(numa_nodes, count, m[MIN_NODES]), Fact(near_cores, near, m[NEAR], "<"), busy)
    return Evidence(facts, f"the GPU is on node {m[gpu_node]}")


def then(m: Metrics, found: Evidence) -> Advice:
    """then bind the process, and its memory, to the node of its GPU."""
    node = m[gpu_node]
    one = f"numactl --cpunodebind={node} --membind={node} python train.py\n"
    every = "torchrun --numa-binding=node --nproc-per-node=N train.py  # torch 2.9 or newer\n"
    return Advice(
        then=f"Bind the process to NUMA node {node}, where its GPU is: {share(1 - m[near_cores])} of the cores it may "
        "run on are of another.",
        changes=(Change(language="shell", code=every if (m.get(world_size) or 1) > 1 else one),),
        basis="Copies, loading and launches get 0, 3 or 10 % faster.",
        effect=in_turn(remove("h2d", "loader_overhead", "other", shares=FASTER), remove_launch_idle(FASTER)),
        memory=0,
        risk="Low: with --membind, memory beyond the node's own is refused; --preferred allows it.",
    )


def _busy(m: Metrics) -> Fact | None:
    """What there is to gain from; Missing if what was measured cannot decide."""
    copies, late = m.get(h2d_fraction), m.get(launch_bound_index)
    if copies is not None and copies >= m[MIN_H2D]:
        return Fact(h2d_fraction, copies, m[MIN_H2D])
    if late is not None and late >= m[MIN_LAUNCH_BOUND]:
        return Fact(launch_bound_index, late, m[MIN_LAUNCH_BOUND])
    m[h2d_fraction]
    m[launch_bound_index]  # unknown, it might have shown what copies do not
    return None


RULE = Rule(
    title="Run near the GPU",
    tier=Tier.VALIDITY,
    when=when,
    then=then,
    confidence=Confidence.HEURISTIC,
    difficulty=1,
    sources=(
        Source(
            "PyTorch Performance Tuning Guide", "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html"
        ),
        Source("Linux: sysfs, devices/system/node", "https://docs.kernel.org/admin-guide/mm/numaperf.html"),
    ),
)
