"""Every rank keeps a whole copy of gradients and optimizer state.

In data parallel training the copies are the same. ZeRO gives each rank a part to keep and update: stage 1 shards the
optimizer's state, stage 2 the gradients too. What travels between GPUs stays the same: a reduce-scatter and an
all-gather are what an all-reduce consists of.

Wrong when: there is one GPU (nothing to share with), or activations fill the memory rather than states. It makes
nothing faster; only the larger batch it has room for may.
"""

from __future__ import annotations

import json

from advisor.metrics.base import Metrics
from advisor.metrics.gpu import device
from advisor.metrics.input import loader
from advisor.metrics.memory import (
    alloc_retries,
    mem_grads,
    mem_headroom,
    mem_optim,
    mem_params,
    mem_peak_allocated,
    memory_pressure,
    oom_count,
)
from advisor.metrics.settings import flags, model, world_size
from advisor.metrics.step import micro_steps_per_step
from advisor.models.memory import FILL, States
from advisor.rules.base import Advice, Change, Confidence, Evidence, Fact, Rule, Source, Tier
from profiler.schema import FlagsFact

# Below that share of the peak, sharding states frees too little to change what fits.
MIN_SHARE = 0.35

# Of the device, what stage 1 must leave to be enough where memory ran out: the peak lacks the allocation that failed
# (assumption).
MISSING_ROOM = 0.2


def when(m: Metrics) -> Evidence | None:
    """If memory is under pressure on two ranks or more, and at least 35 % of its peak are gradients and optimizer state
    that every rank keeps whole,
    """
    settings = m.get(flags)
    if m[world_size] < 2 or not m[memory_pressure]:
        return None
    # Several ranks are data parallel only if something makes them so: a scheduler starts independent jobs, too.
    if settings and (_sharded(settings) or not settings.ddp):
        return None
    replicated, limit = m[mem_optim] + m[mem_grads], MIN_SHARE * m[mem_peak_allocated]
    if replicated < limit:
        return None
    return Evidence(
        (
            Fact(mem_optim, m[mem_optim]),
            Fact(mem_grads, m[mem_grads]),
            Fact(world_size, m[world_size], 2),
            Fact(oom_count, m[oom_count]),
            Fact(alloc_retries, m[alloc_retries]),
            Fact(mem_headroom, m[mem_headroom]),
        ),
        note=f"together {replicated / m[mem_peak_allocated]:.0%} of the peak",
    )


def then(m: Metrics, found: Evidence) -> Advice:
    """then shard the optimizer's state over the ranks, and the gradients too if that does not suffice."""
    before, ranks = States(m[mem_params], m[mem_grads], m[mem_optim]), m[world_size]
    stage = _stage(m, before, ranks)
    after = before.sharded(stage, ranks)
    what = "optimizer state" if stage == 1 else "optimizer state and gradients"
    return Advice(
        then=f"Shard {what} over the {ranks} ranks (ZeRO stage {stage}): weights, gradients and optimizer state of a "
        f"rank go from {before.total / 1e9:.2f} to {after.total / 1e9:.2f} GB, optimizer state alone from "
        f"{before.optimizer / 1e9:.2f} to {after.optimizer / 1e9:.2f} GB. Use either DeepSpeed or FSDP2.",
        changes=(
            Change(language="json", code=_deepspeed(m, stage), file="ds_config.json"),
            Change(language="python", code=_fsdp(m)),
        ),
        basis="ZeRO: the sharded parts are divided by the number of ranks; the volume of communication stays.",
        memory=round(after.total - before.total),
        risk="Low: the same update. Checkpoints are sharded too: save and load them by the framework's functions.",
        fault=True,
    )


def _sharded(settings: FlagsFact) -> bool:
    return settings.fsdp or bool(settings.zero_stage)


def _stage(m: Metrics, before: States, ranks: int) -> int:
    """1 if it brings the device below a safe filling, else 2."""
    capacity = m[device].memory_total
    used = (1 - m[mem_headroom]) * capacity + (MISSING_ROOM * capacity if m[oom_count] else 0.0)
    freed = before.total - before.sharded(1, ranks).total
    return 1 if used - freed <= FILL * capacity else 2


def _deepspeed(m: Metrics, stage: int) -> str:
    config: dict[str, object] = {"zero_optimization": {"stage": stage, "overlap_comm": True}}
    source, settings = m.get(loader), m.get(flags)
    if source is not None and source.batch_size:
        config["train_micro_batch_size_per_gpu"] = source.batch_size
        config["gradient_accumulation_steps"] = round(m.get(micro_steps_per_step) or 1)
    if settings and settings.autocast:
        half = "bf16" if (settings.autocast_dtype or "").endswith("bfloat16") else "fp16"
        config[half] = {"enabled": True}
    return json.dumps(config, indent=2) + "\n"


def _fsdp(m: Metrics) -> str:
    fact = m.get(model)
    blocks = (
        f"for block in [module for module in model.modules() if type(module).__name__ == {fact.block!r}]:\n"
        "    fully_shard(block, reshard_after_forward=False)\n"
        if fact and fact.block
        else ""
    )
    return (
        "from torch.distributed.fsdp import fully_shard\n\n"
        "# in place of DistributedDataParallel, before the optimizer is made; False keeps weights gathered until the\n"
        "# backward pass is done, which is ZeRO stage 2\n"
        f"{blocks}fully_shard(model, reshard_after_forward=False)\n"
    )


RULE = Rule(
    title="Shard optimizer state over the ranks",
    tier=Tier.DISTRIBUTED,
    when=when,
    then=then,
    confidence=Confidence.EMPIRICAL,
    difficulty=2,
    sources=(
        Source("Rajbhandari et al., ZeRO, SC 2020", "https://arxiv.org/abs/1910.02054"),
        Source("DeepSpeed, ZeRO tutorial", "https://www.deepspeed.ai/tutorials/zero/"),
        Source("PyTorch, fully_shard", "https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html"),
    ),
)
