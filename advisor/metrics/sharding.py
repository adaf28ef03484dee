"""How a model's states lie on the ranks that train it: what each of them keeps, and what it would at another stage."""

from __future__ import annotations

from advisor.metrics.base import Metrics, Missing
from advisor.metrics.gpu import device
from advisor.metrics.memory import filled, mem_grads, mem_optim, mem_params, oom_count
from advisor.metrics.settings import data_parallel_size, flags, model, optimizer, shard_size
from advisor.models.memory import MISSING_ROOM, States


def data_parallel(m: Metrics) -> bool:
    """Whether the ranks train one model together: a scheduler starts independent jobs, too."""
    if m[data_parallel_size] == 1:
        return False
    settings = m[flags]
    return settings.ddp or settings.fsdp or settings.zero_stage is not None or _deepspeed_runs(m)


def hybrid(m: Metrics) -> bool:
    """Whether it is sharded within groups of ranks, each of which keeps a copy (HSDP)."""
    return m[shard_size] < m[data_parallel_size]


def stage(m: Metrics) -> int:
    """Of ZeRO, 0 (everything whole) to 3 (weights, gradients and optimizer state sharded); Missing where it shards,
    but how is not known.
    """
    settings = m[flags]
    if settings.zero_stage is not None:
        return settings.zero_stage
    if settings.fsdp:
        raise Missing(
            "Whether FSDP shards weights between forward and backward pass (stage 3) or keeps them (2) is not recorded",
            "Look at reshard_after_forward of fully_shard, or at FSDP's sharding_strategy.",
        )
    if _deepspeed_runs(m):
        raise Missing(
            "DeepSpeed's stage of ZeRO is not recorded", "Look at zero_optimization.stage in its configuration."
        )
    return 0


def states(m: Metrics) -> States:
    """Of one rank, as it is."""
    return States(m[mem_params], m[mem_grads], m[mem_optim])


def whole(m: Metrics) -> States:
    """Of one rank, if nothing were sharded. Between steps FSDP holds a part of the weights at stage 2, too."""
    now, at, ranks = states(m), stage(m), m[shard_size]
    if at and (_deepspeed_runs(m) or not (now.parameters and now.gradients)):
        raise Missing(
            "The rank's part of weights and gradients was not seen: DeepSpeed keeps them in buffers of its own",
            "Reckon what another stage takes: profile-train plan --help.",
        )
    return States(
        now.parameters * (ranks if at >= 3 or (at == 2 and m[flags].fsdp) else 1),
        now.gradients * (ranks if at >= 2 else 1),
        now.optimizer * (ranks if at >= 1 else 1),
    )


def unit(m: Metrics) -> tuple[float, int]:
    """Parameters of the largest unit that is gathered, and bytes of one: a block, or all that is in no block."""
    fact = m[model]
    if not fact.block or not fact.block_bytes or not fact.bytes:
        raise Missing(
            "The model has no equal blocks to shard one by one",
            "Wrap its largest parts in fully_shard, each on its own, and compare the peaks.",
        )
    element = max(1, round(fact.bytes / fact.parameters))
    return max(fact.block_bytes, fact.bytes - fact.blocks * fact.block_bytes) / element, element


def filled_at(m: Metrics, other: int) -> float:
    """Share of the device that the step would need at another stage; what failed to be allocated is reckoned in."""
    before, ranks = whole(m), m[shard_size]
    grown = before.sharded(other, ranks).total - before.sharded(stage(m), ranks).total
    return filled(m, grown) + (MISSING_ROOM if m[oom_count] else 0.0)


def offloaded(m: Metrics) -> bool:
    """Whether the optimizer updates on the host while the model computes on a GPU.

    Weights on the host are a sign of that only where a framework fetches them: else they are trained there.
    """
    m[device]
    on_host = (m[optimizer].device or "").startswith("cpu")
    fetched = m[flags].fsdp or _deepspeed_runs(m)
    return on_host and (fetched or not any(name.startswith("cpu") for name in m[model].devices))


def _deepspeed_runs(m: Metrics) -> bool:
    fact = m.get(model)
    return fact is not None and "DeepSpeedEngine" in fact.wrappers
