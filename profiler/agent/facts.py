"""What the model, the optimizer and the program's settings look like: dictionaries with the field names of
`profiler.schema`'s fact classes. Read seldom, from attributes only: nothing is computed on a device, nothing waits.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from . import ranks

FSDP = "_fsdp_wrapped_module"
WRAPPERS = ("module", "_orig_mod", "_forward_module", FSDP)  # DDP and DataParallel, torch.compile, Lightning Fabric

# By the name of FullyShardedDataParallel's sharding strategy.
STAGES = {"FULL_SHARD": 3, "HYBRID_SHARD": 3, "SHARD_GRAD_OP": 2, "_HYBRID_SHARD_ZERO2": 2, "NO_SHARD": 0}


def model(module: Any, number: int) -> dict[str, Any]:
    """ModelFact of a root module."""
    wrappers = []
    inner = module
    while True:
        name = type(inner).__name__
        if written(inner) is not type(inner):
            wrappers.append(type(inner).__bases__[0].__name__)
        if getattr(inner, "_compiled_call_impl", None) is not None and name != "OptimizedModule":
            compiled = getattr(inner._compiled_call_impl, "__wrapped__", inner._compiled_call_impl)
            if compiled is not None:
                wrappers.append("Module.compile")
        following = next(
            (inner._modules[key] for key in WRAPPERS if key in inner._modules and len(inner._modules) == 1), None
        )
        if following is None:
            break
        wrappers.append(name)
        inner = following
    dtypes: dict[str, int] = {}
    devices: dict[str, int] = {}
    count = trainable = tensors = size = 0
    for parameter in module.parameters():
        elements = parameter.numel()
        count += elements
        size += elements * parameter.element_size()
        if parameter.requires_grad:
            trainable += elements
            tensors += 1
        dtype = str(parameter.dtype).replace("torch.", "")
        dtypes[dtype] = dtypes.get(dtype, 0) + elements
        device = str(parameter.device)
        devices[device] = devices.get(device, 0) + elements
    classes: dict[str, int] = {}
    for child in inner.modules():
        name = written(child).__name__
        classes[name] = classes.get(name, 0) + 1
    fact = {
        "id": number,
        "name": written(inner).__qualname__,
        "wrappers": wrappers,
        "parameters": count,
        "trainable": trainable,
        "tensors": tensors,
        "bytes": size,
        "dtypes": dtypes,
        "devices": devices,
        "modules": dict(sorted(classes.items(), key=lambda item: -item[1])[:40]),
        "compiled": any(name in ("OptimizedModule", "Module.compile") for name in wrappers),
    }
    fact.update(_block(inner))
    fact.update(ranks.sharing(module))
    return fact


def written(module: Any) -> type:
    """The class as the program wrote it: `fully_shard` and `replicate` derive one from theirs and the program's."""
    cls: type = type(module)
    bases = cls.__bases__
    return bases[1] if len(bases) == 2 and bases[0].__module__.startswith("torch.distributed.") else cls


def held(tensor: Any) -> int:
    """Bytes of it that this process holds: of a DTensor, its shard."""
    local = getattr(tensor, "_local_tensor", tensor)
    return int(local.numel() * local.element_size())


def _block(module: Any) -> dict[str, Any]:
    """The repeated child with the most parameters in all: what activation checkpointing would wrap."""
    best: tuple[int, dict[str, Any]] = (0, {})
    for path, parent in module.named_modules():
        by_class: dict[type, list[Any]] = {}
        for child in parent.children():
            child = child._modules[FSDP] if FSDP in child._modules else child  # noqa: SIM401 - a scripted one has no get
            by_class.setdefault(written(child), []).append(child)
        for cls, children in by_class.items():
            if len(children) < 2 or cls.__module__ == "torch.nn.modules.container":
                continue  # the stages of a ResNet are Sequentials: the blocks are in them
            sizes = [sum(p.numel() * p.element_size() for p in child.parameters()) for child in children]
            if sum(sizes) > best[0] and next(children[0].children(), None) is not None:
                best = (
                    sum(sizes),
                    {"block": cls.__name__, "blocks": len(children), "block_path": path, "block_bytes": max(sizes)},
                )
    return best[1]


def gradients(instance: Any) -> list[Any]:
    """Tensors of an optimizer's parameters that exist now."""
    grads = [parameter.grad for group in instance.param_groups for parameter in group["params"]]
    return [grad for grad in grads if grad is not None]


def states(instance: Any) -> list[Any]:
    """Tensors of an optimizer's state, as far as it exists; ZeroRedundancyOptimizer's is kept by the one inside it."""
    kept = instance.state or getattr(getattr(instance, "optim", None), "state", {})
    values = [value for state in kept.values() if isinstance(state, dict) for value in state.values()]
    return [value for value in values if hasattr(value, "element_size") and hasattr(value, "numel")]


def held_on_gpu(tensors: list[Any]) -> int:
    """Bytes of those on a GPU: steps are counted, and offloaded states lie, on the host."""
    return sum(held(tensor) for tensor in tensors if getattr(tensor, "is_cuda", False))


def optimizer(instance: Any, number: int, where: Any) -> dict[str, Any]:
    """OptimizerFact; bytes of the state as far as it exists, wherever it lies."""
    tensors = elements = 0
    device = None
    floating = True
    for group in instance.param_groups:
        for parameter in group["params"]:
            tensors += 1
            elements += parameter.numel()
            device = device or str(parameter.device)
            floating = floating and parameter.is_floating_point()
    defaults = getattr(instance, "defaults", {}) or {}
    lr = instance.param_groups[0].get("lr") if instance.param_groups else None
    return {
        "id": number,
        "place": where,
        "name": type(instance).__name__,
        "module": type(instance).__module__,
        "groups": len(instance.param_groups),
        "tensors": tensors,
        "parameters": elements,
        "fused": defaults.get("fused"),
        "foreach": defaults.get("foreach"),
        "lr": lr if isinstance(lr, (int, float)) else None,
        "state_bytes": sum(held(tensor) for tensor in states(instance)),
        "gradient_bytes": sum(held(tensor) for tensor in gradients(instance)),
        "device": device,
        "floating": floating,
    }


def flags(torch: Any, used: dict[str, Any]) -> dict[str, Any]:
    """FlagsFact: the switches of torch as they are now, and what the hooks have seen used."""
    environment = os.environ
    fact: dict[str, Any] = {
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "launch_blocking": environment.get("CUDA_LAUNCH_BLOCKING", "0") not in ("", "0"),
        "distributed_debug": environment.get("TORCH_DISTRIBUTED_DEBUG"),
        "allow_tf32": _tf32(torch),
        "matmul_precision": _matmul_precision(torch),
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
        "threads": torch.get_num_threads(),
        "interop_threads": torch.get_num_interop_threads(),
        "allocator_config": environment.get("PYTORCH_ALLOC_CONF") or environment.get("PYTORCH_CUDA_ALLOC_CONF"),
    }
    fact.update(used)
    return fact


def zero_stage(sharded: list[Any], optimizers: list[dict[str, Any]]) -> Any:
    """Of ZeRO: the highest of the models', 1 where an optimizer shards its own state; None if nothing tells."""
    stages = [stage for stage in sharded if stage is not None]
    if any(fact["name"] == "ZeroRedundancyOptimizer" for fact in optimizers):
        stages.append(1)
    return max(stages, default=None)


def sharding(module: Any) -> Any:
    """Stage of ZeRO of a root module: 3 if part of its weights is freed after the forward pass to be gathered again, 2
    if they are kept until the backward pass is done; None if nothing shards it, or does not tell.
    """
    stages = [_stage(each) for each in module.modules()]
    return max((stage for stage in stages if stage is not None), default=None)


def _stage(module: Any) -> Any:
    """Of one module, if it is a unit that is sharded. The root unit is kept for the backward pass that follows."""
    names = [cls.__name__ for cls in type(module).__mro__]
    try:
        if "FullyShardedDataParallel" in names:
            stage = STAGES[module.sharding_strategy.name]
            return min(stage, 2) if getattr(module, "_is_root", False) else stage
        if names[1] == "FSDPModule":  # not that of `replicate`, which derives from it
            state = module._get_fsdp_state()
            groups = getattr(state, "_fsdp_param_groups", None) or [state._fsdp_param_group]
            freed = [group.post_forward_mesh_info is not None for group in groups if group is not None]
            return (3 if any(freed) else 2) if freed else None
        if "DeepSpeedEngine" in names:
            return int(module.zero_optimization_stage())
    except Exception:  # these attributes are private, and of the versions we have read
        return None
    return None


def _tf32(torch: Any) -> Any:
    try:
        return bool(torch.backends.cuda.matmul.allow_tf32)
    except RuntimeError:  # torch refuses to answer once the program has used the newer fp32_precision switches
        return getattr(torch.backends.cuda.matmul, "fp32_precision", None) == "tf32"


def _matmul_precision(torch: Any) -> Any:
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:  # as above
        return "high" if _tf32(torch) else None


def process(torch: Any, agent_pid: int) -> dict[str, Any]:
    """What the recorder's `Process` row is made of."""
    worker = sys.modules.get("torch.utils.data._utils.worker")
    info = getattr(worker, "_worker_info", None)
    return {
        "pid": agent_pid,
        "parent": os.getppid(),
        "role": "rank" if info is None else "worker",
        "worker_id": None if info is None else info.id,
        **ranks.numbers(),
        "python": sys.version.split()[0],
        "executable": sys.executable or None,
        "cpus": _cpus(),
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
    }


def _cpus() -> Any:
    """Cores this process may run on, as Linux lists them: "0-15,32-47"."""
    if not hasattr(os, "sched_getaffinity"):
        return None
    ranges: list[list[int]] = []
    for core in sorted(os.sched_getaffinity(0)):
        if ranges and core == ranges[-1][1] + 1:
            ranges[-1][1] = core
        else:
            ranges.append([core, core])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in ranges)


def devices(torch: Any) -> list[dict[str, Any]]:
    """DeviceFacts, once the program has initialised CUDA itself; never before."""
    cuda = torch.cuda
    if not cuda.is_initialized():
        return []
    found = []
    for index in range(cuda.device_count()):
        properties = cuda.get_device_properties(index)
        found.append(
            {
                "id": index,
                "name": properties.name,
                "uuid": str(getattr(properties, "uuid", "")) or None,
                "capability": [properties.major, properties.minor],
                "memory_total": properties.total_memory,
                "multiprocessors": properties.multi_processor_count,
                "architectures": cuda.get_arch_list(),
            }
        )
    return found
