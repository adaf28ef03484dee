"""Which recorders belong to one job, by command and environment."""

import pytest
import slurm_variables as slurm

from profiler.recorder.job import job

TORCHRUN = ("torchrun", "--nnodes", "2", "--node-rank", "0", "--master-addr", "host0", "train.py", "--node-rank", "9")


def test_nodes_of_one_command_form_one_job():
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
        (("train.py",), slurm.STEP, "h-rank3"),
        (("train.py",), slurm.PMI2, "h-rank3"),
        (("train.py",), slurm.ONE, "h"),
        (("train.py",), slurm.BATCH, "h"),
        (("train.py",), slurm.OPEN_MPI, "h-rank3"),
        (("train.py",), slurm.HYDRA, "h-rank3"),
        (("train.py",), slurm.HYDRA_HERE, "h-rank1"),
        (("train.py",), {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, "h-rank1"),
        (("train.py",), {"PMI_RANK": "1", "PMI_SIZE": "2"}, "h-rank1"),
        (("train.py",), {"RANK": "x", "WORLD_SIZE": "../y"}, "h"),
        (("torchrun", "--nnodes=2", "--node_rank=1", "train.py"), {}, "h-node1"),
        (("torchrun", "--nnodes=1:4", "train.py"), slurm.STEP, "h-node1"),
        (("torchrun", "--nnodes=2", "--rdzv-backend=c10d", "train.py"), {}, "h-node"),
        (("torchrun", "--nnodes=1", "--nproc-per-node=8", "train.py"), {}, "h"),
        (("torchrun", "train.py", "--nnodes", "2"), {}, "h"),
        (("accelerate", "launch", "--num_machines", "2", "--machine_rank", "1", "train.py"), {}, "h-node1"),
        ((), {}, "h"),
        (("torchrun", "--nnodes"), {"PET_NNODES": "2"}, "h"),
    ],
)
def test_recorders_of_a_job_have_distinct_names(words, environment, part):
    assert job(words, environment, "h").part == part


def test_a_scheduler_names_each_start():
    first, again = job(("train.py",), slurm.STEP, "h"), job(("train.py",), slurm.STEP | {"SLURM_STEP_ID": "1"}, "h")
    requeued = job(("train.py",), slurm.REQUEUED, "h")

    assert (first.start, requeued.start) == ("slurm-33-0", "slurm-33-0-1")
    assert len({first.id, again.id, requeued.id}) == 3
    assert job(("train.py",), {"PMIX_NAMESPACE": "prte@1/../x"}, "h").start == "mpi-prte_1_.._x"
