"""Write the chosen placement as settings: lines for torch, JSON for DeepSpeed, YAML for accelerate."""

import json
from dataclasses import dataclass

from advisor.plan.memory import Choice, MemoryPlan
from advisor.plan.placement import Offload

_CLASSES = {
    "adamw": "torch.optim.AdamW",
    "adam": "torch.optim.Adam",
    "sgd": "torch.optim.SGD",
    "sgd-momentum": "torch.optim.SGD",
    "lion": "lion_pytorch.Lion",
    "adafactor": "torch.optim.Adafactor",
}
# bitsandbytes cannot update the sharded tensors of FSDP2; torchao's optimizer can.
_IN_8_BITS, _SHARDED_IN_8_BITS = "bitsandbytes.optim.AdamW8bit", "torchao.optim.AdamW8bit"
_HALVES = {"bf16": "bf16", "bf16-master": "bf16", "fp16": "fp16"}
_TYPES = {"bf16": "bfloat16", "bf16-master": "bfloat16", "fp16": "float16"}


@dataclass(frozen=True, slots=True)
class Setting:
    """The settings for one framework."""

    tool: str
    language: str
    code: str | None
    """The text to write; None if the framework has no such setting."""
    note: str


def settings(plan: MemoryPlan) -> tuple[Setting, ...]:
    """Return the settings for torch, DeepSpeed and accelerate; empty if nothing fits."""
    choice = plan.choice
    if choice is None:
        return ()
    tools = (("torch", "python", _torch), ("DeepSpeed", "json", _deepspeed), ("accelerate", "yaml", _accelerate))
    return tuple(Setting(tool, language, *writer(plan, choice)) for tool, language, writer in tools)


def _torch(plan: MemoryPlan, choice: Choice) -> tuple[str | None, str]:
    placement, precision = choice.account.placement, plan.model.precision
    if placement.offload is Offload.OPTIMIZER:
        return None, "torch offloads everything or nothing: use DeepSpeed or accelerate."
    if precision == "bf16-master" and placement.stage < 3:
        note = "torch keeps no master copy of 16-bit weights: use DeepSpeed, or plan with --precision bf16 (autocast)."
        return None, note
    sharded = placement.stage >= 2
    lines = [*_imports(plan, choice), ""]
    if precision == "tf32":
        lines.append('torch.set_float32_matmul_precision("high")')
    if precision == "pure-bf16":
        lines.append("model.to(torch.bfloat16)")
    if sharded or choice.checkpointing.every is not None:
        lines.append("blocks = model.layers  # the ModuleList of its repeated blocks")
    lines += _checkpointed(choice)
    if sharded:
        lines += _fully_sharded(plan, choice)
    elif plan.cluster.gpus > 1:
        lines.append("model = DistributedDataParallel(model)")
    lines += [*_updated(choice), *_forward(plan, choice)]
    note = "FSDP2; reshard_after_forward=False keeps weights gathered until the backward pass: ZeRO 2."
    return _text(lines), note if placement.stage == 2 else ""


def _imports(plan: MemoryPlan, choice: Choice) -> list[str]:
    stage, optimizer = choice.account.placement.stage, _optimizer(choice)
    package = optimizer.split(".")[0]
    lines = ["import torch"] + ([] if package == "torch" else [f"import {optimizer.rpartition('.')[0]}"])
    if choice.checkpointing.every is not None:
        lines += [
            "from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (",
            "    checkpoint_wrapper,",
            ")",
        ]
    if stage >= 2:
        names = ["fully_shard"]
        if choice.account.placement.offload is Offload.ALL:
            names.insert(0, "CPUOffloadPolicy")
        if plan.model.precision in _TYPES:
            names.insert(-1, "MixedPrecisionPolicy")
        lines += ["from torch.distributed.fsdp import (", *(f"    {name}," for name in names), ")"]
    else:
        if stage == 1:
            lines.append("from torch.distributed.optim import ZeroRedundancyOptimizer")
        if plan.cluster.gpus > 1:
            lines.append("from torch.nn.parallel import DistributedDataParallel")
    return lines


def _checkpointed(choice: Choice) -> list[str]:
    checkpointing = choice.checkpointing
    if checkpointing.selective:
        return ["# in attention: F.scaled_dot_product_attention keeps no scores; else checkpoint its core alone"]
    if checkpointing.every is None:
        return []
    return [f"for i in range(0, len(blocks), {checkpointing.every}):", "    blocks[i] = checkpoint_wrapper(blocks[i])"]


def _fully_sharded(plan: MemoryPlan, choice: Choice) -> list[str]:
    options = [f"reshard_after_forward={choice.account.placement.stage == 3}"]
    if plan.model.precision in _TYPES:
        options.append(f"mp_policy=MixedPrecisionPolicy(param_dtype=torch.{_TYPES[plan.model.precision]})")
    if choice.account.placement.offload is Offload.ALL:
        options.append("offload_policy=CPUOffloadPolicy()")
    lines = ["# replaces DistributedDataParallel; call it before creating the optimizer"]
    return [
        *(lines if plan.cluster.gpus > 1 else ()),
        "options = dict(",
        *(f"    {option}," for option in options),
        ")",
        "for block in blocks:",
        "    fully_shard(block, **options)",
        "fully_shard(model, **options)",
    ]


def _updated(choice: Choice) -> list[str]:
    options = "lr=lr, momentum=0.9" if choice.account.optimizer == "sgd-momentum" else "lr=lr"
    if choice.account.placement.stage == 1:
        return [
            "optimizer = ZeroRedundancyOptimizer(",
            f"    model.parameters(), optimizer_class={_optimizer(choice)}, {options}",
            ")",
        ]
    return [f"optimizer = {_optimizer(choice)}(model.parameters(), {options})"]


def _forward(plan: MemoryPlan, choice: Choice) -> list[str]:
    """Return the autocast lines if FSDP's policy does not cover them."""
    if not plan.model.autocast or choice.account.placement.stage >= 2:
        return []
    kind = _TYPES[plan.model.precision]
    scaler = ["scaler = torch.amp.GradScaler()  # around backward and step"] if kind == "float16" else []
    return ["", *scaler, f'with torch.autocast("cuda", dtype=torch.{kind}):  # around forward and loss', "    ..."]


def _deepspeed(plan: MemoryPlan, choice: Choice) -> tuple[str | None, str]:
    if plan.model.precision == "pure-bf16" and choice.account.placement.offload is Offload.NOTHING:
        return None, "DeepSpeed keeps an fp32 copy of the weights: plan with --precision bf16-master."
    placement = choice.account.placement
    zero: dict[str, object] = {"stage": placement.stage}
    if plan.cluster.gpus > 1 and placement.stage:
        zero["overlap_comm"] = True
    if placement.offload is not Offload.NOTHING:
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
    if placement.offload is Offload.ALL:
        zero["offload_param"] = {"device": "cpu", "pin_memory": True}
    config: dict[str, object] = {"zero_optimization": zero}
    if half := _half(plan, choice):
        config[half] = {"enabled": True}
    if choice.account.optimizer not in ("adamw", "adam"):
        config["zero_allow_untested_optimizer"] = True
    micro, steps = _batches(plan, choice)
    config |= {"train_micro_batch_size_per_gpu": micro, "gradient_accumulation_steps": steps}
    return json.dumps(config, indent=2) + "\n", _deepspeed_note(plan, choice)


def _deepspeed_note(plan: MemoryPlan, choice: Choice) -> str:
    sentences = []
    if plan.model.autocast:
        sentences.append(
            "It keeps 16-bit weights and an fp32 master copy, sharded with the optimizer; this needs no more memory "
            "than planned."
        )
    if choice.account.placement.offload is not Offload.NOTHING:
        sentences.append(
            "Make the optimizer deepspeed.ops.adam.DeepSpeedCPUAdam: torch's optimizer is several times "
            "slower on the host."
        )
    if choice.account.optimizer == "adamw-8bit":
        sentences.append(f"Give it {_IN_8_BITS} as the optimizer.")
    if choice.checkpointing.every is not None:
        sentences.append("Blocks are checkpointed in the model, as in the lines for torch.")
    return " ".join(sentences)


def _accelerate(plan: MemoryPlan, choice: Choice) -> tuple[str | None, str]:
    placement, precision = choice.account.placement, plan.model.precision
    by_deepspeed = placement.offload is Offload.OPTIMIZER or precision == "bf16-master"
    if by_deepspeed or (placement.stage == 1 and precision != "pure-bf16"):
        kind, lines = "DEEPSPEED", _accelerate_deepspeed(plan, choice)
    elif placement.stage >= 2:
        kind, lines = "FSDP", _accelerate_fsdp(choice)
    elif placement.stage == 1:
        return None, "Prepare ZeroRedundancyOptimizer as in the lines for torch."
    else:
        kind, lines = ("MULTI_GPU" if plan.cluster.gpus > 1 else "NO"), []
    head = [
        f"distributed_type: {kind}",
        f"num_machines: {plan.cluster.nodes}",
        f"num_processes: {plan.cluster.gpus}",
        f"mixed_precision: {_half(plan, choice) or repr('no')}",
    ]
    sentences = []
    if choice.checkpointing.every is not None and not (kind == "FSDP" and choice.checkpointing.every == 1):
        sentences.append("Blocks are checkpointed in the model, as in the lines for torch.")
    if choice.account.optimizer == "adamw-8bit":
        sentences.append(f"Prepare {_SHARDED_IN_8_BITS if kind == 'FSDP' else _IN_8_BITS} as the optimizer.")
    if kind != "DEEPSPEED" and _batches(plan, choice)[1] > 1:
        sentences.append(f"Accelerator(gradient_accumulation_steps={_batches(plan, choice)[1]}).")
    return _text(head + lines), " ".join(sentences)


def _accelerate_deepspeed(plan: MemoryPlan, choice: Choice) -> list[str]:
    placement = choice.account.placement
    devices = {True: "cpu", False: "none"}
    return [
        "deepspeed_config:",
        f"  zero_stage: {placement.stage}",
        f"  gradient_accumulation_steps: {_batches(plan, choice)[1]}",
        f"  offload_optimizer_device: {devices[placement.offload is not Offload.NOTHING]}",
        f"  offload_param_device: {devices[placement.offload is Offload.ALL]}",
    ]


def _accelerate_fsdp(choice: Choice) -> list[str]:
    placement = choice.account.placement
    words = {True: "true", False: "false"}
    lines = [
        "fsdp_config:",
        "  fsdp_version: 2",
        f"  fsdp_reshard_after_forward: {words[placement.stage == 3]}",
        "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP",
        "  fsdp_transformer_layer_cls_to_wrap: Block  # its repeated class",
        f"  fsdp_offload_params: {words[placement.offload is Offload.ALL]}",
    ]
    return lines + (["  fsdp_activation_checkpointing: true"] if choice.checkpointing.every == 1 else [])


def _optimizer(choice: Choice) -> str:
    name = choice.account.optimizer
    if name == "adamw-8bit":
        return _SHARDED_IN_8_BITS if choice.account.placement.stage >= 2 else _IN_8_BITS
    return _CLASSES[name]


def _half(plan: MemoryPlan, choice: Choice) -> str | None:
    """Return the dtype that DeepSpeed or accelerate computes in.

    DeepSpeed's offload keeps fp32 weights on the host in any case.
    """
    by_host = choice.account.placement.offload is not Offload.NOTHING and plan.model.precision == "pure-bf16"
    return "bf16" if by_host else _HALVES.get(plan.model.precision)


def _batches(plan: MemoryPlan, choice: Choice) -> tuple[int, int]:
    """Return the micro-batch, and how many of them make a step."""
    if (accumulation := plan.accumulation) is not None:
        return accumulation.micro_batch, accumulation.steps
    return plan.micro_batch or plan.largest(choice.account, choice.checkpointing) or 1, 1


def _text(lines: list[str]) -> str:
    return "\n".join(lines) + "\n"
