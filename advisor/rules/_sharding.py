"""What rules about sharding share: the settings to copy."""

from __future__ import annotations

import json

from advisor.metrics.base import Metrics
from advisor.metrics.input import loader
from advisor.metrics.settings import flags, model
from advisor.metrics.sharding import hybrid
from advisor.metrics.step import micro_steps_per_step
from advisor.rules._spelling import spelling
from advisor.rules.base import Change


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
    if hybrid(m):
        more, why = f", mesh=mesh{more}", f"{why}; with the mesh there is,\n# or all ranks share one copy"
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
