"""Every rank keeps all weights, and memory would be short even with everything else sharded.

ZeRO stage 3, the default of FSDP, also shards the weights. Each block is gathered just before it computes, in the
forward pass and again in the backward pass. The communication volume is 1.5 times that of stages 1 and 2, which is why
those come first.

Wrong when: links between GPUs are slow (with several machines, shard only within each machine: HSDP). If blocks are not
wrapped individually, all weights are gathered at once and stay complete while the model computes.

Source: Rajbhandari et al., ZeRO, SC 2020, https://arxiv.org/abs/1910.02054
Source: PyTorch, fully_shard, https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
Source: DeepSpeed, ZeRO tutorial, https://www.deepspeed.ai/tutorials/zero/
"""

from advisor.metrics import Metrics, Threshold, communication, gpu, memory, settings, sharding
from advisor.models.effects import COMPUTE
from advisor.models.memory import FILL
from advisor.models.sharding import ZERO_3_VOLUME, gathered
from advisor.rules._memory import pressure, to_stage
from advisor.rules._phases import exposed, remove_exposed
from advisor.rules.base import Advice, Area, Confidence, Evidence, Intervention, Rule, Safety, evidence, measure

RULE = Rule(
    "Shard the weights over the ranks as well",
    Area.DISTRIBUTED,
    Confidence.EMPIRICAL,
    difficulty=3,
    supersedes=("zero-1-2",),
)

MIN_FREED = Threshold(
    0.05,
    "Share of GPU memory; sharded weights must free this much to justify 1.5 times the communication (assumption).",
)

# Exposed communication grows with its volume: by twice as much if communication that is hidden now becomes exposed, not
# at all if the next block's weights arrive in time (assumption).
MORE_VOLUME = ZERO_3_VOLUME - 1
SHARES = (-2 * MORE_VOLUME, -MORE_VOLUME, 0.0)


def when(m: Metrics) -> Evidence | None:
    """If memory is under pressure on two or more ranks, would still be with sharded optimizer state and gradients (ZeRO
    stage 2), and sharding the weights as well frees at least 5 % of GPU memory,
    """
    if m[settings.data_parallel_size] < 2 or not m[memory.memory_pressure]:
        return None
    if not sharding.data_parallel(m) or sharding.stage(m) >= 3:
        return None
    if sharding.filled_at(m, 2) <= FILL or _freed_by_weights(m) < m[MIN_FREED] * m[gpu.device].memory_total:
        return None
    return evidence(
        measure(m, memory.mem_params),
        measure(m, settings.world_size, ">=", 2),
        *pressure(m),
        note=f"ZeRO stage 2 would need {sharding.filled_at(m, 2):.0%} of GPU memory",
    )


def then(m: Metrics, found: Evidence) -> Advice:
    """then shard the weights as well, block by block."""
    ranks, group_note = m[settings.shard_size], " of each group" if sharding.hybrid(m) else ""
    old_bytes, new_bytes = sharding.whole(m).sharded(sharding.stage(m), ranks).total, _sharded_total(m)
    filled_share = sharding.filled_at(m, 2) - _freed_by_weights(m) / m[gpu.device].memory_total
    shortage_note = "" if filled_share <= FILL else " Checkpointing or offloading must free the rest."
    is_measured = m.get(communication.exposed_comm_seconds) is not None
    return Advice(
        then=f"Shard weights, gradients and optimizer state over the {ranks} ranks{group_note} (ZeRO stage 3): a "
        f"rank's part and two gathered blocks take {new_bytes / 1e9:.2f} GB instead of {old_bytes / 1e9:.2f}. Use "
        f"either FSDP2 or DeepSpeed.{shortage_note}",
        changes=to_stage(m, 3),
        basis="ZeRO: everything is divided by the number of ranks, and two blocks are gathered at a time. "
        "Communication and its exposed part grow by a factor of 1.5.",
        effect=remove_exposed("communication", exposed(m), SHARES, within=COMPUTE) if is_measured else None,
        memory=round(new_bytes - old_bytes),
        intervention=in_place_of_ddp(m),
        risk="Low: the same update. Checkpoints are sharded: save and load them with the framework's functions.",
        fault=True,
    )


def in_place_of_ddp(m: Metrics) -> Intervention | None:
    """Return the intervention that replaces DistributedDataParallel with FSDP2 from outside.

    None if the ranks do not train one model under DistributedDataParallel, or another framework already shards.
    """
    model, flags = m.get(settings.model), m.get(settings.flags)
    if model is None or flags is None or (m.get(settings.data_parallel_size) or 1) < 2:
        return None
    if not flags.ddp or flags.fsdp or flags.zero_stage:
        return None
    return Intervention(name="fsdp2", settings={"block": model.block}, safety=Safety.NUMERICS)


def _sharded_total(m: Metrics) -> float:
    """Return the bytes of one rank at stage 3, including the gathered blocks."""
    return sharding.whole(m).sharded(3, m[settings.shard_size]).total + gathered(*sharding.unit(m))


def _freed_by_weights(m: Metrics) -> float:
    """Return the bytes freed beyond what stage 2 frees."""
    return sharding.whole(m).sharded(2, m[settings.shard_size]).total - _sharded_total(m)
