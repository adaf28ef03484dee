"""States fill the memory of the GPUs, and nothing cheaper than the host's memory is left.

The optimizer's state is touched once an update. On the host it costs none of the GPU's memory but the time to send
gradients down and weights up, and an update at the pace of the host's memory: often more than the step itself. So it is
the last resort: after smaller micro-batches, checkpointing, 8-bit moments and sharding.

Wrong when: any of these is still possible in a way that this run does not show, or the host's memory is needed for the
data. Where the update takes longer than the step, a smaller model or another GPU may be the better choice.
"""

from __future__ import annotations

from advisor.metrics.base import Metrics, Missing, Threshold
from advisor.metrics.host import host_memory_available, local_ranks
from advisor.metrics.input import loader
from advisor.metrics.memory import mem_grads, mem_optim, mem_params, mem_peak_allocated, memory_pressure
from advisor.metrics.settings import model, world_size
from advisor.metrics.sharding import offloaded, stage
from advisor.metrics.step import phase_seconds
from advisor.models.effects import lengthen
from advisor.models.sharding import ALL, exposed_offload, offload_time
from advisor.models.state import Effect
from advisor.rules._pressure import pressure
from advisor.rules._sharding import deepspeed, fsdp
from advisor.rules.base import Advice, Change, Confidence, Evidence, Fact, Rule, Source, Tier
from advisor.units import seconds

MIN_SHARE = Threshold(0.25, "Below that share of the peak, offloading frees too little for what it costs (assumption).")

# Bytes/s that one GPU's PCIe 4.0 x16 link and a node's memory move in practice (assumption).
PCIE = 25e9
HOST_MEMORY = 80e9


def when(m: Metrics) -> Evidence | None:
    """If memory is under pressure on one rank, or with everything sharded, a quarter of its peak is gradients and
    optimizer state, and the host has room for them,
    """
    if not m[memory_pressure] or offloaded(m) or (m[world_size] > 1 and stage(m) < 3):
        return None
    if not m[loader].batch_size:
        raise Missing(
            "Whether the batch could be split is unknown", "Let the DataLoader make the batches: batch_size=N."
        )
    moved, limit = _moved(m), m[MIN_SHARE] * m[mem_peak_allocated]
    if moved < limit or m[host_memory_available] < _host_memory(m):
        return None
    return Evidence(
        (
            Fact(mem_optim, m[mem_optim]),
            Fact(mem_grads, m[mem_grads]),
            Fact(host_memory_available, m[host_memory_available], _host_memory(m)),
            *pressure(m),
        ),
        note=f"together {moved / m[mem_peak_allocated]:.0%} of the peak",
    )


def then(m: Metrics, found: Evidence) -> Advice:
    """then keep optimizer state and gradients in the host's memory, as the last resort."""
    zero = 3 if m[world_size] > 1 else 2
    return Advice(
        then=f"Keep gradients and optimizer state in the host's memory: that frees {_moved(m) / 1e9:.2f} GB of each "
        f"GPU, takes about {_host_memory(m) / 1e9:.0f} GB of the node's memory and up to {seconds(_time(m))} more a "
        "step. If that is not enough, the weights can follow (offload_param), or states go to a fast NVMe drive, which "
        "is slower still.",
        changes=(
            Change(
                language="json",
                code=deepspeed(m, zero, offload_optimizer={"device": "cpu", "pin_memory": True}),
                file="ds_config.json",
            ),
            Change(
                language="python",
                code=fsdp(
                    m,
                    "; FSDP2 takes the weights\n# to the host as well",
                    "offload_policy=CPUOffloadPolicy()",
                    "CPUOffloadPolicy, fully_shard",
                ),
            ),
        ),
        basis="4 bytes a parameter over the bus at 25 GB/s, 28 through the host's memory at 80 GB/s a node; at best "
        "behind the backward pass.",
        effect=_effect(m),
        memory=-round(_moved(m)),
        host_memory=round(_host_memory(m)),
        risk="Low to results: the same update in fp32 on the host. Medium to speed: measure a short run first.",
        fault=True,
    )


def _moved(m: Metrics) -> float:
    return m[mem_optim] + m[mem_grads]


def _updated(m: Metrics) -> float:
    """Parameters that this rank updates."""
    fact = m[model]
    if not fact.bytes or not m[mem_params]:
        raise Missing(
            "The rank's part of the weights was not seen", "Reckon what fits by hand: profile-train plan --help."
        )
    return m[mem_params] / fact.bytes * fact.trainable


def _host_memory(m: Metrics) -> float:
    """Bytes of the node: 18 a parameter, at the update."""
    return ALL * _updated(m) * m[local_ranks]


def _time(m: Metrics) -> float:
    """Of the update on the host, nothing hidden; a node's ranks share its memory."""
    return offload_time(_updated(m), 1, bus=PCIE, host=HOST_MEMORY / m[local_ranks])


def _effect(m: Metrics) -> Effect:
    phases = m.get(phase_seconds) or {}
    hidden = exposed_offload(_time(m), phases.get("backward", 0.0))
    return lengthen("optimizer", (_time(m), hidden, hidden))


RULE = Rule(
    title="Keep optimizer state in the host's memory",
    tier=Tier.OFFLOAD,
    when=when,
    then=then,
    confidence=Confidence.HEURISTIC,
    difficulty=3,
    sources=(
        Source("DeepSpeed, ZeRO-Offload tutorial", "https://www.deepspeed.ai/tutorials/zero-offload/"),
        Source("DeepSpeed, memory requirements", "https://deepspeed.readthedocs.io/en/latest/memory.html"),
        Source("Rajbhandari et al., ZeRO, SC 2020", "https://arxiv.org/abs/1910.02054"),
    ),
)
