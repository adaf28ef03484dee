"""Models that are spread over a mesh of ranks: how many ranks share the data."""

import json

import pytest
from programs import ROOT

pytestmark = pytest.mark.slow

MESHES = """
import atexit, json, os, sys, torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from profiler.agent import ranks

def net(): return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 8))

def tensor_parallel(mesh): return parallelize_module(net(), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})

dist.init_process_group("gloo")
atexit.register(dist.destroy_process_group)
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
half = dist.new_subgroups_by_enumeration([[0, 1], [2, 3]])[0]
models = {
    "plain": net(),
    "ddp": torch.nn.parallel.DistributedDataParallel(net()),
    "ddp-of-a-half": torch.nn.parallel.DistributedDataParallel(net(), process_group=half),
    "tensor-parallel": tensor_parallel(mesh["tp"]),
    "fsdp": fully_shard(net()),
    "fsdp-and-tensor-parallel": fully_shard(tensor_parallel(mesh["tp"]), mesh=mesh["dp"]),
    "hybrid": fully_shard(net(), mesh=mesh),
}
found = {name: list(ranks.sharing(model).values()) for name, model in models.items()}
if dist.get_rank() == 0: print("found: " + json.dumps(found), flush=True)
assert ranks.numbers()["rank"] == dist.get_rank() and ranks.numbers()["world_size"] == 4
dist.barrier()
sys.stdout.flush()
os._exit(0)  # with this many groups, gloo's threads occasionally abort interpreter shutdown
"""


def test_number_of_data_parallel_ranks_is_recorded(script, start):
    ran = start(
        *("torchrun", "--standalone", "--nproc-per-node", "4", script(MESHES)),
        env={"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
    ).finish()
    assert ran.status == 0, ran.err.decode()
    (line,) = (line for line in ran.out.decode().splitlines() if line.startswith("found: "))
    assert json.loads(line[7:]) == {
        "plain": [None, None],
        "ddp": [4, 1],
        "ddp-of-a-half": [2, 1],
        "tensor-parallel": [None, None],
        "fsdp": [4, 4],
        "fsdp-and-tensor-parallel": [2, 2],
        "hybrid": [4, 2],
    }
