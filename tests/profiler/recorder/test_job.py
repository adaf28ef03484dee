"""Which recorders are of one job, by command and environment."""

import pytest

from profiler.recorder.job import job

TORCHRUN = ("torchrun", "--nnodes", "2", "--node-rank", "0", "--master-addr", "host0", "train.py", "--node-rank", "9")


def test_nodes_of_one_command_are_of_one_job():
    first = job(TORCHRUN, {}, "host")
    second = job((*TORCHRUN[:4], "1", *TORCHRUN[5:]), {}, "host")
    other = job((*TORCHRUN[:-1], "8"), {}, "host")

    assert (first.part, second.part) == ("host-node0", "host-node1")
    assert first.id == second.id != other.id, "what comes after the script is the script's"
    assert first.is_shared
    assert first.start is None


@pytest.mark.parametrize(
    ("words", "environment", "part"),
    [
        (("train.py",), {}, "h"),
        (("train.py",), {"RANK": "0", "WORLD_SIZE": "1"}, "h"),
        (("train.py",), {"RANK": "3", "WORLD_SIZE": "4"}, "h-rank3"),
        (("train.py",), {"SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_NODEID": "0"}, "h-rank1"),
        (("train.py",), {"SLURM_PROCID": "0", "SLURM_NTASKS": "8", "SLURM_STEP_NUM_TASKS": "1"}, "h"),
        (("train.py",), {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, "h-rank1"),
        (("train.py",), {"PMI_RANK": "1", "PMI_SIZE": "2"}, "h-rank1"),
        (("train.py",), {"RANK": "x", "WORLD_SIZE": "../y"}, "h"),
        (("torchrun", "--nnodes=2", "--node_rank=1", "train.py"), {}, "h-node1"),
        (("torchrun", "--nnodes=1:4", "train.py"), {"SLURM_NODEID": "2"}, "h-node2"),
        (("torchrun", "--nnodes=2", "--rdzv-backend=c10d", "train.py"), {}, "h-node"),
        (("torchrun", "--nnodes=1", "--nproc-per-node=8", "train.py"), {}, "h"),
        (("torchrun", "train.py", "--nnodes", "2"), {}, "h"),
        (("accelerate", "launch", "--num_machines", "2", "--machine_rank", "1", "train.py"), {}, "h-node1"),
        ((), {}, "h"),
        (("torchrun", "--nnodes"), {"PET_NNODES": "2"}, "h"),
    ],
)
def test_what_tells_recorders_apart(words, environment, part):
    assert job(words, environment, "h").part == part


def test_a_scheduler_names_each_start():
    task = {"SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0", "SLURM_PROCID": "1", "SLURM_NTASKS": "2"}
    first, again = job(("train.py",), task, "h"), job(("train.py",), task | {"SLURM_STEP_ID": "1"}, "h")

    assert first.start == "slurm-77-0"
    assert first.id != again.id
    assert job(("train.py",), {"PMIX_NAMESPACE": "prte@1/../x"}, "h").start == "mpi-prte_1_.._x"
