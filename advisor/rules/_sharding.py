"""What rules about sharding share: how the run shards now, what another stage would fill, and the settings to copy."""

from __future__ import annotations

import json

from advisor.metrics.base import Metrics, Missing
from advisor.metrics.communication import exposed_comm_seconds, straggler_wait
from advisor.metrics.gpu import device
from advisor.metrics.input import loader
from advisor.metrics.memory import mem_grads, mem_headroom, mem_optim, mem_params, oom_count
from advisor.metrics.settings import data_parallel_size, flags, model, optimizer, shard_size
from advisor.metrics.step import micro_steps_per_step
from advisor.models.memory import States
from advisor.rules._spelling import spelling
from advisor.rules.base import Change

# Of the device, what must be left beyond the peak where memory ran out: it lacks the allocation that failed
# (assumption).
MISSING_ROOM = 0.2


def data_parallel(m: Metrics) -> bool:
    """Whether the ranks train one model together: a scheduler starts independent jobs, too."""
    if m[data_parallel_size] == 1:
        return False
    settings = m[flags]
    return settings.ddp or settings.fsdp or settings.zero_stage is not None or _deepspeed_runs(m)


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
    return 1 - m[mem_headroom] + (MISSING_ROOM if m[oom_count] else 0.0) + grown / m[device].memory_total


def exposed(m: Metrics) -> float:
    """Seconds of a step in collectives that nothing hides; without the waiting for slower ranks where that is known,
    for sharding changes nothing about it.
    """
    return max(0.0, m[exposed_comm_seconds] - (m.get(straggler_wait) or 0.0))


def offloaded(m: Metrics) -> bool:
    """Whether the optimizer updates on the host while the model computes on a GPU.

    Weights on the host are a sign of that only where a framework fetches them: else they are trained there.
    """
    m[device]
    on_host = (m[optimizer].device or "").startswith("cpu")
    fetched = m[flags].fsdp or _deepspeed_runs(m)
    return on_host and (fetched or not any(name.startswith("cpu") for name in m[model].devices))


def to_stage(m: Metrics, zero: int) -> tuple[Change, ...]:
    """In the words of the framework that drives the loop; else DeepSpeed's and FSDP2's."""
    why = (
        "; each block is gathered on its own"
        if zero == 3
        else "; False keeps weights gathered until the\n# backward pass is done, which is ZeRO stage 2; of "
        "FullyShardedDataParallel:\n# sharding_strategy=ShardingStrategy.SHARD_GRAD_OP"
    )
    return spelling(m).shard(zero) or (
        Change(language="json", code=deepspeed(m, zero), file="ds_config.json"),
        Change(language="python", code=fsdp(m, why, "" if zero == 3 else "reshard_after_forward=False")),
    )


def deepspeed(m: Metrics, zero: int, **options: object) -> str:
    """Its configuration, as far as it is about this."""
    config: dict[str, object] = {"zero_optimization": {"stage": zero, "overlap_comm": True, **options}}
    source, settings = m.get(loader), m.get(flags)
    if source is not None and source.batch_size:
        config["train_micro_batch_size_per_gpu"] = source.batch_size
        config["gradient_accumulation_steps"] = round(m.get(micro_steps_per_step) or 1)
    if settings and settings.autocast:
        half = "bf16" if (settings.autocast_dtype or "").endswith("bfloat16") else "fp16"
        config[half] = {"enabled": True}
    return json.dumps(config, indent=2) + "\n"


def fsdp(m: Metrics, why: str, argument: str = "", imports: str = "fully_shard") -> str:
    """`fully_shard` for every block and the model, with an argument of its own and a comment that says why."""
    fact, name = m.get(model), spelling(m).model
    more = f", {argument}" if argument else ""
    blocks = (
        f"for block in [module for module in {name}.modules() if type(module).__name__ == {fact.block!r}]:\n"
        f"    fully_shard(block{more})\n"
        if fact and fact.block
        else ""
    )
    return (
        f"from torch.distributed.fsdp import {imports}\n\n"
        f"# in place of any other wrapper, before the optimizer is made{why}\n{blocks}fully_shard({name}{more})\n"
    )


def _deepspeed_runs(m: Metrics) -> bool:
    fact = m.get(model)
    return fact is not None and "DeepSpeedEngine" in fact.wrappers
