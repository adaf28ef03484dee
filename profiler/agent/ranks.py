"""Which rank this process is under any launcher, and how the ranks share a model."""

import os
import sys
from typing import Any

from . import look

# Variables of the rank and of the number of ranks, by launcher: torchrun (accelerate, deepspeed), Open MPI, Hydra
# (MPICH, Intel MPI), MVAPICH, Cray PALS, Flux, Slurm. Slurm comes last: where mpirun starts one daemon per node by
# srun, its ranks inherit the daemon's numbers.
RANKS_AND_SIZES = (
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    ("PALS_RANKID", "PALS_SIZE"),
    ("FLUX_TASK_RANK", "FLUX_JOB_SIZE"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
)
RANK, WORLD_SIZE = zip(*RANKS_AND_SIZES)  # noqa: B905 - Python 3.9 has no strict
LOCAL_RANK: tuple[str, ...] = (
    *("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "MV2_COMM_WORLD_LOCAL_RANK"),
    *("PALS_LOCAL_RANKID", "FLUX_TASK_LOCAL_ID", "SLURM_LOCALID"),
)
NODE_RANK = ("GROUP_RANK", "NODE_RANK", "SLURM_NODEID", "PALS_NODEID")


def numbers() -> dict[str, int]:
    """Return the rank, local rank, world size and node rank.

    Rank and world size come from torch.distributed if it is initialized, else from the launcher's variables.
    """
    environment = os.environ

    def number(names: tuple[str, ...]) -> int:
        for name in names:
            try:
                return int(environment[name])
            except (KeyError, ValueError):
                continue
        return 0

    is_alone = is_batch_script(environment)
    rank, world_size = _joined() or (number(RANK), 1 if is_alone else max(1, number(WORLD_SIZE)))
    return {"rank": rank, "local_rank": number(LOCAL_RANK), "world_size": world_size, "node_rank": number(NODE_RANK)}


def worker_info() -> Any:
    """Return torch's information about this DataLoader worker; None in any other process."""
    return getattr(sys.modules.get("torch.utils.data._utils.worker"), "_worker_info", None)


def is_batch_script(environment: Any) -> bool:
    """Return whether this process is a Slurm batch script.

    Slurm gives a batch script the number of tasks that srun will start, but the script itself is not one of them.
    """
    variables = {name for name in RANK if name in environment}
    return variables == {"SLURM_PROCID"} and environment["SLURM_PROCID"] == "0" and "SLURM_STEP_ID" not in environment


def _joined() -> Any:
    """Return rank and world size in torch's default group; None if there is none."""
    distributed = sys.modules.get("torch.distributed")
    try:
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            return int(distributed.get_rank()), int(distributed.get_world_size())
    except Exception:  # half imported, or a version that we have not read
        pass
    return None


def sharing(module: Any) -> dict[str, Any]:
    """Return the ModelFact fields on sharing: `data_parallel` and `shards`.

    They hold the number of ranks that train the module on different data, and how many of those share one copy of its
    weights.
    """
    sizes = [pair for pair in map(_reduced_among, look.modules(module)) if pair]
    data_parallel, shards = max(sizes, default=(None, None))
    return {"data_parallel": data_parallel, "shards": shards}


def sharded_groups(module: Any) -> list[Any]:
    """Return the parameter groups of a module that `fully_shard` made a unit.

    The program may have overridden the methods of the module's class, so this calls the method of torch's base class.
    """
    state = look.class_dict_of(look.mro_of(type(module))[1])["_get_fsdp_state"](module)
    groups = getattr(state, "_fsdp_param_groups", None) or [state._fsdp_param_group]
    return [group for group in groups if group is not None]


def _reduced_among(module: Any) -> Any:
    """Return how many ranks reduce a module's gradients together, and how many share one copy of its weights.

    Returns None if that is unknown.
    """
    names = [look.name_of(cls) for cls in look.mro_of(type(module))]
    attributes = look.dict_of(module)
    try:
        if "DistributedDataParallel" in names:
            return int(attributes["process_group"].size()), 1
        if names[1:2] == ["FSDPModule"]:
            return max(_of_mesh(group.mesh_info) for group in sharded_groups(module))
        if "FullyShardedDataParallel" in names:
            inter_node_group = attributes.get("_inter_node_pg")  # only where shards are replicated, too
            shards = int(attributes["process_group"].size())
            return shards * (int(inter_node_group.size()) if inter_node_group is not None else 1), shards
    except Exception:  # these attributes are private, and known only for the versions we have read
        pass
    return None


def _of_mesh(info: Any) -> Any:
    shards = int(getattr(info, "shard_mesh_size", 1))
    return shards * int(getattr(info, "replicate_mesh_size", 1)), shards
