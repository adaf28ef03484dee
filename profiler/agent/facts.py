"""Facts about the model, the optimizer and the program's settings.

Each fact is a dictionary with the field names of the matching fact class in `profiler.schema`. Facts are read rarely
and from attributes only: nothing is computed on a device and nothing waits.
"""

import os
import sys
from collections import Counter
from collections.abc import Iterable
from typing import Any

from . import look, ranks

FSDP = "_fsdp_wrapped_module"
WRAPPERS = ("module", "_orig_mod", "_forward_module", FSDP)  # DDP and DataParallel, torch.compile, Lightning Fabric

# ZeRO stage, by name of FullyShardedDataParallel's sharding strategy.
STAGES = {"FULL_SHARD": 3, "HYBRID_SHARD": 3, "SHARD_GRAD_OP": 2, "_HYBRID_SHARD_ZERO2": 2, "NO_SHARD": 0}


def model(module: Any, number: int) -> dict[str, Any]:
    """Return the ModelFact of a root module."""
    wrappers = []
    inner = module
    while True:
        name = look.name_of(type(inner))
        if written(inner) is not type(inner):
            wrappers.append(look.name_of(look.bases_of(type(inner))[0]))
        if look.dict_of(inner).get("_compiled_call_impl") is not None and name != "OptimizedModule":
            wrappers.append("Module.compile")
        wrapped_module = next((part for key in WRAPPERS if (part := look.child(inner, key)) is not None), None)
        if wrapped_module is None or len(look.children(inner)) != 1:
            break
        wrappers.append(name)
        inner = wrapped_module
    dtypes: Counter[str] = Counter()
    devices: Counter[str] = Counter()
    parameters = look.parameters(module)
    tensors = _tensors(parameters)
    trainable = [facts for facts in tensors if facts.trainable]
    for facts in tensors:
        dtypes[facts.dtype] += facts.elements
        devices[str(facts.device)] += facts.elements
    classes = Counter(look.name_of(written(child)) for child in look.modules(inner))
    return {
        "id": number,
        "name": look.qualified_name_of(written(inner)),
        "wrappers": wrappers,
        "parameters": sum(facts.elements for facts in tensors),
        "trainable": sum(facts.elements for facts in trainable),
        "tensors": len(trainable),
        "bytes": sum(facts.bytes for facts in tensors),
        "sized": len(tensors) == len(parameters),
        "dtypes": dtypes,
        "devices": devices,
        "modules": dict(sorted(classes.items(), key=lambda item: -item[1])[:40]),
        "compiled": any(name in ("OptimizedModule", "Module.compile") for name in wrappers),
        **_block(inner),
        **ranks.sharing(module),
    }


def written(module: Any) -> type:
    """Return the class as the program wrote it.

    `fully_shard` and `replicate` derive a class from one in torch and the program's; this returns the program's.
    """
    cls: type = type(module)
    bases = look.bases_of(cls)
    return bases[1] if len(bases) == 2 and look.module_of(bases[0]).startswith("torch.distributed.") else cls


def _block(module: Any) -> dict[str, Any]:
    """Return the repeated child class with the most parameter bytes in total.

    It is what activation checkpointing would wrap. Returns an empty dictionary if no child repeats.
    """
    best: tuple[int, dict[str, Any]] = (0, {})
    for parent in look.modules(module):
        by_class: dict[type, list[Any]] = {}
        for child in look.children(parent):
            sharded = look.child(child, FSDP)
            child = child if sharded is None else sharded
            by_class.setdefault(written(child), []).append(child)
        for cls, children in by_class.items():
            if len(children) < 2 or look.module_of(cls) == "torch.nn.modules.container":
                continue  # the stages of a ResNet are Sequentials: the blocks are in them
            sizes = [sum(tensor.bytes for tensor in _tensors(look.parameters(child))) for child in children]
            if sum(sizes) > best[0] and look.children(children[0]):
                block = {"block": look.name_of(cls), "blocks": len(children), "block_bytes": max(sizes)}
                best = sum(sizes), block
    return best[1]


def _updated(instance: Any) -> list[Any]:
    """Return the parameters that an optimizer updates, if it stores its groups as torch's own optimizers do."""
    return [parameter for group in _groups(instance) for parameter in look.values(group.get("params"))]


def _groups(instance: Any) -> list[dict[str, Any]]:
    return [group for group in look.values(look.dict_of(instance).get("param_groups")) if type(group) is dict]


def gradients(instance: Any) -> list[look.TensorFacts]:
    """Return the gradients of an optimizer's parameters that exist now."""
    return _tensors(look.gradient(parameter) for parameter in _updated(instance))


def states(instance: Any) -> list[look.TensorFacts]:
    """Return the existing tensors of an optimizer's state; ZeroRedundancyOptimizer keeps it in an inner optimizer."""
    attributes = look.dict_of(instance)
    parameter_states = look.values(attributes.get("state")) or look.values(
        look.dict_of(attributes.get("optim")).get("state")
    )
    return _tensors(value for state in parameter_states for value in look.values(state))


def _tensors(values: Iterable[Any]) -> list[look.TensorFacts]:
    return [tensor for tensor in map(look.tensor, values) if tensor is not None]


def held_on_gpus(tensors: list[look.TensorFacts]) -> dict[int, int]:
    """Return the bytes held on each GPU, by GPU index.

    Tensors on the host (step counts, offloaded states) are left out.
    """
    sizes: Counter[int] = Counter()
    for tensor in tensors:
        if tensor.device.type == "cuda":
            sizes[tensor.device.index] += tensor.held
    return sizes


def optimizer(instance: Any, number: int, where: Any) -> dict[str, Any]:
    """Return the OptimizerFact, with the bytes of the state that exists so far, on any device."""
    groups, parameters = _groups(instance), _updated(instance)
    tensors = _tensors(parameters)
    first_group = groups[0] if groups else {}
    defaults = look.dict_of(instance).get("defaults")
    defaults = defaults if type(defaults) is dict else {}
    switches = {name: value if type(value := defaults.get(name)) is bool else None for name in ("fused", "foreach")}
    lr = first_group.get("lr")
    return {
        "id": number,
        "place": where,
        "name": look.name_of(type(instance)),
        "module": look.module_of(type(instance)),
        "tensors": len(parameters),
        "parameters": sum(tensor.elements for tensor in tensors),
        "sized": bool(groups) and len(tensors) == len(parameters),
        **switches,
        "lr": lr if type(lr) in (int, float) else None,
        "state_bytes": sum(tensor.held for tensor in states(instance)),
        "gradient_bytes": sum(tensor.held for tensor in gradients(instance)),
        "device": str(tensors[0].device) if tensors else None,
        "floating": all(tensor.floating for tensor in tensors),
    }


def flags(torch: Any, used: dict[str, Any]) -> dict[str, Any]:
    """Return the FlagsFact: torch's switches as they are now, and the features the hooks have seen in use."""
    environment = os.environ
    return {
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "launch_blocking": environment.get("CUDA_LAUNCH_BLOCKING", "0") not in ("", "0"),
        "distributed_debug": environment.get("TORCH_DISTRIBUTED_DEBUG"),
        "allow_tf32": _tf32(torch),
        "matmul_precision": _matmul_precision(torch),
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
        "threads": torch.get_num_threads(),
        "interop_threads": torch.get_num_interop_threads(),
        "allocator_config": environment.get("PYTORCH_ALLOC_CONF") or environment.get("PYTORCH_CUDA_ALLOC_CONF"),
        **used,
    }


def zero_stage(sharded: list[Any], optimizers: list[dict[str, Any]]) -> Any:
    """Return the highest ZeRO stage in use, or None if it is unknown.

    `sharded` holds the stages of the models; an optimizer that shards its own state counts as stage 1.
    """
    stages = [stage for stage in sharded if stage is not None]
    if any(fact["name"] == "ZeroRedundancyOptimizer" for fact in optimizers):
        stages.append(1)
    return max(stages, default=None)


def sharding(module: Any) -> Any:
    """Return the ZeRO stage of a root module.

    3 if part of its weights is freed after the forward pass and gathered again, 2 if they are kept until the backward
    pass is done, None if nothing shards the module or its stage cannot be read.
    """
    stages = [_stage(submodule) for submodule in look.modules(module)]
    return max((stage for stage in stages if stage is not None), default=None)


def _stage(module: Any) -> Any:
    """Return the ZeRO stage of one module if it is a sharded unit, else None.

    A root unit of FullyShardedDataParallel counts as 2 at most: its weights are kept for the backward pass that
    follows.
    """
    names = [look.name_of(cls) for cls in look.mro_of(type(module))]
    attributes = look.dict_of(module)
    try:
        if "FullyShardedDataParallel" in names:
            stage = STAGES[attributes["sharding_strategy"].name]
            return min(stage, 2) if attributes.get("_is_root") is True else stage
        if names[1] == "FSDPModule":  # not `replicate`'s class, which derives from it
            groups = ranks.sharded_groups(module)
            freed = [group.post_forward_mesh_info is not None for group in groups]
            return (3 if any(freed) else 2) if freed else None
        if "DeepSpeedEngine" in names:
            engine = look.mro_of(type(module))[names.index("DeepSpeedEngine")]
            return int(look.class_dict_of(engine)["zero_optimization_stage"](module))
    except Exception:  # these attributes are private, and known only for the versions we have read
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


def process(torch: Any) -> dict[str, Any]:
    """Return the fields from which the recorder builds its `Process` row."""
    info = ranks.worker_info()
    return {
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


def _cpus() -> str:
    """Return the cores this process may run on, in Linux list format: "0-15,32-47"."""
    ranges: list[list[int]] = []
    for core in sorted(os.sched_getaffinity(0)):
        if ranges and core == ranges[-1][1] + 1:
            ranges[-1][1] = core
        else:
            ranges.append([core, core])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in ranges)


def devices(torch: Any) -> list[dict[str, Any]]:
    """Return the DeviceFacts, or an empty list while the program has not initialized CUDA itself."""
    cuda = torch.cuda
    if not cuda.is_initialized():
        return []
    facts = []
    for index in range(cuda.device_count()):
        properties = cuda.get_device_properties(index)
        facts.append(
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
    return facts
