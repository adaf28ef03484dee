"""Helpers for rules about memory: the evidence of memory pressure, and the settings that shard the model."""

import json

from advisor.metrics import Metrics, input, memory, settings, sharding, step
from advisor.rules._spelling import spelling
from advisor.rules.base import Change, Measurement, measure, python


def pressure(m: Metrics) -> tuple[Measurement, ...]:
    """Return the facts that `memory_pressure` is derived from.

    They carry no limits, because any one of them may be the reason.
    """
    return measure(m, memory.oom_count), measure(m, memory.alloc_retries), measure(m, memory.mem_headroom)


def to_stage(m: Metrics, zero: int) -> tuple[Change, ...]:
    """Return the changes that shard the model at the given ZeRO stage.

    They are written for the framework that drives the loop. If it has no setting for sharding, both a DeepSpeed
    configuration and FSDP2 code are returned.
    """
    comment = (
        "; each block is gathered separately"
        if zero == 3
        else "; False keeps weights gathered until the\n"
        "# backward pass is done, which is ZeRO stage 2; for FullyShardedDataParallel:\n"
        "# sharding_strategy=ShardingStrategy.SHARD_GRAD_OP"
    )
    return spelling(m).shard(zero) or (
        Change(language="json", code=deepspeed(m, zero), file="ds_config.json"),
        python(fsdp(m, comment, "" if zero == 3 else "reshard_after_forward=False")),
    )


def redundancy_free(m: Metrics) -> tuple[Change, ...]:
    """Return the change to ZeRO stage 1 that needs no additional framework."""
    optimizer, variable = m[settings.optimizer], spelling(m).optimizer
    return spelling(m).shard(1) or (
        python(
            "from torch.distributed.optim import ZeroRedundancyOptimizer\n\n"
            "# after DistributedDataParallel; other arguments unchanged\n"
            f"{variable} = ZeroRedundancyOptimizer(\n"
            f"    {spelling(m).model}.parameters(), optimizer_class=torch.optim.{optimizer.name}, ...\n"
            ")\n"
            f"{variable}.consolidate_state_dict(to=0)  # on every rank, before rank 0 saves its state_dict()\n"
        ),
    )


def deepspeed(m: Metrics, zero: int, **options: object) -> str:
    """Return the DeepSpeed configuration, as JSON, limited to sharding, batch size and precision."""
    config: dict[str, object] = {"zero_optimization": {"stage": zero, "overlap_comm": True, **options}}
    loader, flags = m.get(input.loader), m.get(settings.flags)
    if loader is not None and loader.batch_size:
        config["train_micro_batch_size_per_gpu"] = loader.batch_size
        config["gradient_accumulation_steps"] = round(m.get(step.micro_steps_per_step) or 1)
    if flags and flags.autocast:
        dtype = "bf16" if (flags.autocast_dtype or "").endswith("bfloat16") else "fp16"
        config[dtype] = {"enabled": True}
    return json.dumps(config, indent=2) + "\n"


def fsdp(m: Metrics, why: str, argument: str = "", imports: str = "fully_shard") -> str:
    """Return code that applies `fully_shard` to every block and to the model.

    Args:
        m: The metrics of the run.
        why: A comment, appended to the line that says where the code belongs.
        argument: An extra argument for each `fully_shard` call.
        imports: The names to import from `torch.distributed.fsdp`.
    """
    model, variable = m.get(settings.model), spelling(m).model
    arguments = f", {argument}" if argument else ""
    if sharding.hybrid(m):
        arguments, why = f", mesh=mesh{arguments}", (f"{why}; pass the mesh,\n# or all ranks share one copy")
    block_code = (
        f"for block in [module for module in {variable}.modules() if type(module).__name__ == {model.block!r}]:\n"
        f"    fully_shard(block{arguments})\n"
        if model and model.block
        else ""
    )
    return (
        f"from torch.distributed.fsdp import {imports}\n\n"
        f"# replaces any other wrapper; call it before creating the optimizer{why}\n"
        f"{block_code}fully_shard({variable}{arguments})\n"
    )
