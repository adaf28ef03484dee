"""The sharding of a model's states: what each rank holds now, and at another ZeRO stage."""

from advisor.metrics.base import Metrics, Missing
from advisor.metrics.gpu import device
from advisor.metrics.memory import filled, mem_grads, mem_optim, mem_params, oom_count
from advisor.metrics.settings import data_parallel_size, flags, model, optimizer, shard_size
from advisor.models.memory import MISSING_ROOM, States


def data_parallel(m: Metrics) -> bool:
    """Return whether the ranks train one model together; a scheduler may also start independent jobs."""
    if m[data_parallel_size] == 1:
        return False
    settings = m[flags]
    return settings.ddp or settings.fsdp or settings.zero_stage is not None or _deepspeed_runs(m)


def hybrid(m: Metrics) -> bool:
    """Return whether the model is sharded within groups of ranks that each keep a copy (HSDP)."""
    return m[shard_size] < m[data_parallel_size]


def stage(m: Metrics) -> int:
    """Return the ZeRO stage, 0 to 3.

    At stage 0 everything is whole; at stage 3 weights, gradients and optimizer state are sharded.

    Raises:
        Missing: the model is sharded, but the stage is not recorded.
    """
    settings = m[flags]
    if settings.zero_stage is not None:
        return settings.zero_stage
    if settings.fsdp:
        raise Missing(
            "Whether FSDP shards weights between forward and backward pass (stage 3) or keeps them (2) is not recorded",
            "Check reshard_after_forward of fully_shard, or FSDP's sharding_strategy.",
        )
    if _deepspeed_runs(m):
        raise Missing("DeepSpeed's ZeRO stage is not recorded", "Check zero_optimization.stage in its configuration.")
    return 0


def states(m: Metrics) -> States:
    """Return the present states of one rank."""
    return States(m[mem_params], m[mem_grads], m[mem_optim])


def whole(m: Metrics) -> States:
    """Return the states of one rank if nothing were sharded.

    Between steps, FSDP holds only a part of the weights at stage 2 as well.
    """
    shard, zero_stage, ranks = states(m), stage(m), m[shard_size]
    if zero_stage and (_deepspeed_runs(m) or not (shard.parameters and shard.gradients)):
        raise Missing(
            "The rank's shard of weights and gradients was not measured: DeepSpeed keeps them in its own buffers",
            "Calculate what another stage needs: profile-train plan --help.",
        )
    return States(
        shard.parameters * (ranks if zero_stage >= 3 or (zero_stage == 2 and m[flags].fsdp) else 1),
        shard.gradients * (ranks if zero_stage >= 2 else 1),
        shard.optimizer * (ranks if zero_stage >= 1 else 1),
    )


def unit(m: Metrics) -> tuple[float, int]:
    """Return the parameters of the largest unit that is gathered, and the bytes of one parameter.

    A unit is one block, or everything outside the blocks.
    """
    fact = m[model]
    if not fact.block or not fact.block_bytes or not fact.bytes:
        raise Missing(
            "The model has no equal blocks to shard separately",
            "Wrap each of its largest parts in fully_shard, and compare the peaks.",
        )
    element = max(1, round(fact.bytes / fact.parameters))
    return max(fact.block_bytes, fact.bytes - fact.blocks * fact.block_bytes) / element, element


def filled_at(m: Metrics, other: int) -> float:
    """Return the share of the device that the step would fill at another stage.

    If memory ran out, this includes room for the allocation that failed.
    """
    whole_states, ranks = whole(m), m[shard_size]
    growth = whole_states.sharded(other, ranks).total - whole_states.sharded(stage(m), ranks).total
    return filled(m, growth) + (MISSING_ROOM if m[oom_count] else 0.0)


def offloaded(m: Metrics) -> bool:
    """Return whether the optimizer updates on the host while the model computes on a GPU.

    Weights on the host indicate this only if a framework fetches them; without one they are trained there.
    """
    m[device]
    on_host = (m[optimizer].device or "").startswith("cpu")
    fetched = m[flags].fsdp or _deepspeed_runs(m)
    return on_host and (fetched or not any(name.startswith("cpu") for name in m[model].devices))


def _deepspeed_runs(m: Metrics) -> bool:
    fact = m.get(model)
    return fact is not None and "DeepSpeedEngine" in fact.wrappers
