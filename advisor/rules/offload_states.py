"""Gradients and optimizer state fill GPU memory, and the only place left for them is host memory.

The optimizer state is used once per update. On the host it takes no GPU memory. In exchange, every update copies
gradients to the host and weights back, and runs at the speed of host memory; it often takes longer than the rest of the
step. So try smaller micro-batches, checkpointing, 8-bit moments and sharding first.

Wrong when: one of those four is possible after all, or the data needs the host memory. If the update takes longer than
the step, a smaller model or another GPU may be the better choice.

Source: DeepSpeed, ZeRO-Offload tutorial, https://www.deepspeed.ai/tutorials/zero-offload/
Source: DeepSpeed, memory requirements, https://deepspeed.readthedocs.io/en/latest/memory.html
Source: Rajbhandari et al., ZeRO, SC 2020, https://arxiv.org/abs/1910.02054
"""

from advisor.metrics import Metrics, Missing, Threshold, host, input, memory, settings, sharding, step
from advisor.models.effects import lengthen
from advisor.models.sharding import ALL, HOST_MEMORY, PCIE, offload_time
from advisor.rules._memory import deepspeed, fsdp, pressure
from advisor.rules.base import Advice, Area, Change, Confidence, Evidence, Rule, measure, python
from advisor.units import seconds

RULE = Rule("Keep optimizer state in the host's memory", Area.OFFLOAD, Confidence.HEURISTIC, difficulty=3)

MIN_SHARE = Threshold(0.25, "Below this share of the peak, offloading frees too little for its cost (assumption).")


def when(m: Metrics) -> Evidence | None:
    """If memory is under pressure on a single rank or although everything is sharded, gradients and optimizer state
    make up at least 25 % of the memory peak, and the host has room for them,
    """
    if not m[memory.memory_pressure] or sharding.offloaded(m) or (m[settings.world_size] > 1 and sharding.stage(m) < 3):
        return None
    if not m[input.loader].batch_size:
        raise Missing(
            "Whether the batch can be split is unknown", "Let the DataLoader create the batches: batch_size=N."
        )
    states, peak = (measure(m, memory.mem_optim), measure(m, memory.mem_grads)), m[memory.mem_peak_allocated]
    moved_bytes = sum(fact.value for fact in states)
    if moved_bytes < m[MIN_SHARE] * peak or m[host.host_memory_available] < (needed_bytes := _host_memory(m)):
        return None
    room = measure(m, host.host_memory_available, ">=", needed_bytes)
    return Evidence((*states, room, *pressure(m)), f"together {moved_bytes / peak:.0%} of the peak")


def then(m: Metrics, found: Evidence) -> Advice:
    """then keep optimizer state and gradients in the host's memory, as the last resort."""
    stage = 3 if m[settings.world_size] > 1 else 2
    moved_bytes = m[memory.mem_optim] + m[memory.mem_grads]
    # The ranks of a node share its memory bandwidth. At best, gradients are copied during the backward pass.
    update_seconds = offload_time(_updated(m), 1, bus=PCIE, host=HOST_MEMORY / m[host.local_ranks])
    exposed_seconds = max(0.0, update_seconds - (m.get(step.phase_seconds) or {}).get("backward", 0.0))
    return Advice(
        then=f"Keep gradients and optimizer state in the host's memory: that frees {moved_bytes / 1e9:.2f} GB of "
        f"each GPU, takes about {_host_memory(m) / 1e9:.0f} GB of the node's memory and makes a step up to "
        f"{seconds(update_seconds)} longer. If that is not enough, offload the weights too (offload_param), or move "
        "states to a fast NVMe drive, which is slower still.",
        changes=(
            Change(
                language="json",
                code=deepspeed(m, stage, offload_optimizer={"device": "cpu", "pin_memory": True}),
                file="ds_config.json",
            ),
            python(
                fsdp(
                    m,
                    "; FSDP2 also offloads\n# the weights to the host",
                    "offload_policy=CPUOffloadPolicy()",
                    "CPUOffloadPolicy, fully_shard",
                )
            ),
        ),
        basis="4 bytes per parameter over the bus at 25 GB/s, and 28 bytes through the host's memory at 80 GB/s per "
        "node. In the best case, the backward pass hides it.",
        effect=lengthen("optimizer", (update_seconds, exposed_seconds, exposed_seconds)),
        memory=-round(moved_bytes),
        host_memory=round(_host_memory(m)),
        risk="Low for results: the same update in fp32 on the host. Medium for speed: measure a short run first.",
        fault=True,
    )


def _updated(m: Metrics) -> float:
    """Return the number of parameters that this rank updates."""
    model = m[settings.model]
    if not model.bytes or not m[memory.mem_params]:
        raise Missing(
            "The rank's part of the weights was not measured",
            "Calculate what fits yourself: profile-train plan --help.",
        )
    return m[memory.mem_params] / model.bytes * model.trainable


def _host_memory(m: Metrics) -> float:
    """Return the bytes of the node's memory needed during the update: 18 per parameter."""
    return ALL * _updated(m) * m[host.local_ranks]
