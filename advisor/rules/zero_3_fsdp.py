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

from advisor.metrics.base import Metrics, Threshold
from advisor.metrics.communication import exposed_comm_seconds
from advisor.metrics.gpu import device
from advisor.metrics.memory import mem_params, memory_pressure
from advisor.metrics.settings import data_parallel_size, flags, model, shard_size, world_size
from advisor.metrics.sharding import data_parallel, filled_at, hybrid, stage, unit, whole
from advisor.models.effects import COMPUTE
from advisor.models.memory import FILL
from advisor.models.sharding import ZERO_3_VOLUME, gathered
from advisor.models.state import Effect
from advisor.rules._exposed import exposed, remove_exposed
from advisor.rules._pressure import pressure
from advisor.rules._sharding import to_stage
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

# Exposed communication grows with its volume; twice as much where what is hidden today no longer is, not at all where
# the next block's weights are there in time (assumption).
MORE_VOLUME = ZERO_3_VOLUME - 1
SHARES = (-2 * MORE_VOLUME, -MORE_VOLUME, 0.0)


def when(m: Metrics) -> Evidence | None:
    """If memory is under pressure on two or more ranks, would still be with sharded optimizer state and gradients (ZeRO
    stage 2), and sharding the weights as well frees at least 5 % of GPU memory,
    """
    if m[data_parallel_size] < 2 or not m[memory_pressure] or not data_parallel(m) or stage(m) >= 3:
        return None
    if filled_at(m, 2) <= FILL or _freed_by_weights(m) < m[MIN_FREED] * m[device].memory_total:
        return None
    return evidence(
        measure(m, mem_params),
        measure(m, world_size, ">=", 2),
        *pressure(m),
        note=f"ZeRO stage 2 would need {filled_at(m, 2):.0%} of GPU memory",
    )


def then(m: Metrics, found: Evidence) -> Advice:
    """then shard the weights as well, block by block."""
    ranks, of_each = m[shard_size], " of each group" if hybrid(m) else ""
    now, after = whole(m).sharded(stage(m), ranks).total, _sharded_total(m)
    filled = filled_at(m, 2) - _freed_by_weights(m) / m[device].memory_total
    enough = "" if filled <= FILL else " Checkpointing or offloading must free the rest."
    return Advice(
        then=f"Shard weights, gradients and optimizer state over the {ranks} ranks{of_each} (ZeRO stage 3): a rank's "
        f"part and two gathered blocks take {after / 1e9:.2f} GB instead of {now / 1e9:.2f}. Use either FSDP2 or "
        f"DeepSpeed.{enough}",
        changes=to_stage(m, 3),
        basis="ZeRO: everything is divided by the number of ranks, and two blocks are gathered at a time. "
        "Communication and its exposed part grow by a factor of 1.5.",
        effect=_effect(m),
        memory=round(after - now),
        intervention=in_place_of_ddp(m),
        risk="Low: the same update. Checkpoints are sharded: save and load them with the framework's functions.",
        fault=True,
    )


def in_place_of_ddp(m: Metrics) -> Intervention | None:
    """Return the intervention that replaces DistributedDataParallel with FSDP2 from outside.

    None if the ranks do not train one model under DistributedDataParallel, or another framework already shards.
    """
    fact, settings = m.get(model), m.get(flags)
    if fact is None or settings is None or (m.get(data_parallel_size) or 1) < 2:
        return None
    if not settings.ddp or settings.fsdp or settings.zero_stage:
        return None
    return Intervention(name="fsdp2", settings={"block": fact.block}, safety=Safety.NUMERICS)


def _sharded_total(m: Metrics) -> float:
    """Return the bytes of one rank at stage 3, including the gathered blocks."""
    return whole(m).sharded(3, m[shard_size]).total + gathered(*unit(m))


def _freed_by_weights(m: Metrics) -> float:
    """Return the bytes freed beyond what stage 2 frees."""
    return whole(m).sharded(2, m[shard_size]).total - _sharded_total(m)


def _effect(m: Metrics) -> Effect | None:
    if m.get(exposed_comm_seconds) is None:
        return None
    return remove_exposed("communication", exposed(m), SHARES, within=COMPUTE)
