"""States are sharded or offloaded further than memory requires.

ZeRO stage 3 gathers the weights again for every pass, which takes 1.5 times the communication of stage 2. An offloaded
optimizer updates on the host and transfers over the bus. Both save memory; if the step fits without them, they only
cost time.

Wrong when: you plan a larger model or batch that needs the memory (declare it: `--capacity`), inputs get longer
later in the training, or the ranks mostly wait for the slowest one, which happens at every stage.

Source: Rajbhandari et al., ZeRO, SC 2020, https://arxiv.org/abs/1910.02054
Source: PyTorch, fully_shard, https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
Source: DeepSpeed, memory requirements, https://deepspeed.readthedocs.io/en/latest/memory.html
"""

from advisor.metrics import Metrics, Threshold, communication, gpu, memory, settings, sharding, step
from advisor.models.effects import COMPUTE, remove
from advisor.rules._memory import to_stage
from advisor.rules._phases import exposed, remove_exposed
from advisor.rules.base import Advice, Area, Confidence, Evidence, Rule, measure, text
from advisor.units import share

RULE = Rule("Do not shard or offload more than memory requires", Area.DISTRIBUTED, Confidence.EMPIRICAL, difficulty=2)

SAFE = Threshold(
    0.85,
    "Share of GPU memory; it is below the usual limit of 92 % because the need of the other stage is estimated, not "
    "measured.",
)

MIN_EXPOSED = Threshold(
    0.05,
    "Share of the step in exposed communication or the offloaded update; saving a third of a smaller share is within "
    "the noise (assumption).",
)

# Share of the exposed communication that is saved: the second gathering of the weights is a third of it.
REGATHERED = (0.2, 0.33, 0.5)
# Share of the update's time that is saved when it returns to the GPU.
UPDATED = (0.7, 0.9, 1.0)

# Bytes per parameter that return with an offloaded optimizer in addition to its state: at most weights and gradients
# in fp32.
RETURNED = 8

BACK = """\
DeepSpeed: remove offload_optimizer (and offload_param) from zero_optimization.
FSDP2: omit offload_policy=CPUOffloadPolicy(); FSDP: cpu_offload=CPUOffload(offload_params=False).
"""


def when(m: Metrics) -> Evidence | None:
    """If weights are sharded (ZeRO stage 3) or the optimizer is offloaded, this takes at least 5 % of the step, no more
    memory is needed, and without it the peak would stay below 85 % of GPU memory,
    """
    if m.goals.more_memory or m[memory.memory_pressure]:
        return None
    filled_share = _filled(m)
    if filled_share is None or filled_share > m[SAFE]:
        return None
    least_seconds = m[MIN_EXPOSED] * m[step.step_time_mean]
    if sharding.offloaded(m):
        cost = measure(m, step.optimizer_fraction, ">=", MIN_EXPOSED)
        is_worthwhile = cost.holds
    else:
        cost = measure(m, communication.exposed_comm_seconds, ">=", least_seconds)
        is_worthwhile = exposed(m) >= least_seconds
    if not is_worthwhile:
        return None
    return Evidence(
        (cost, measure(m, memory.mem_headroom, ">=", 1 - m[SAFE])),
        note=f"one step down, {filled_share:.0%} of GPU memory would be in use",
    )


def then(m: Metrics, found: Evidence) -> Advice:
    """then go one step down: no offloading, or ZeRO stage 2 instead of stage 3."""
    filled_share = _filled(m) or 0.0
    added_share = filled_share - (1 - m[memory.mem_headroom])
    is_offloaded = sharding.offloaded(m)
    action = (
        "Leave the optimizer on the GPU"
        if is_offloaded
        else "Keep gathered weights until the backward pass ends (stage 2)"
    )
    return Advice(
        then=f"{action}: that uses {share(filled_share)} of GPU memory instead of {share(1 - m[memory.mem_headroom])}. "
        "Then record again; perhaps you can go one more step down.",
        changes=(text(BACK),) if is_offloaded else to_stage(m, 2),
        basis="70, 90 or 100 % of the time of the offloaded update is saved."
        if is_offloaded
        else "20, 33 or 50 % of the exposed communication is saved: the second gathering is a third of stage 3's "
        "volume.",
        effect=remove("optimizer", shares=UPDATED)
        if is_offloaded
        else remove_exposed("communication", exposed(m), REGATHERED, within=COMPUTE),
        memory=round(added_share * m[gpu.device].memory_total),
        risk="Low: the same update. If memory runs out, go back one step.",
    )


def _filled(m: Metrics) -> float | None:
    """Return the share of GPU memory in use without offloading or at stage 2; None if neither change applies."""
    if sharding.offloaded(m):
        optimizer = m[settings.optimizer]
        returned_bytes = optimizer.state_bytes + RETURNED * optimizer.parameters
        return memory.filled(m, returned_bytes)
    if not sharding.data_parallel(m) or sharding.stage(m) < 3:
        return None
    return sharding.filled_at(m, 2)
