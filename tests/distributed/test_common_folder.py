"""Several profile-train processes of one job, one per node or per rank, record into one folder."""

import json
import socket

from programs import COMMAND, TORCH
from slurm_variables import STEP

from advisor.runs.load import load
from profiler.store import find

TRAIN = (
    TORCH
    + """
import os, sys, torch
import torch.distributed as dist
torch.set_num_threads(1)
if sys.argv[1:]:
    rank = int(os.environ["SLURM_PROCID"])
    dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=rank, world_size=2)
else:
    dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(400):
    model(torch.ones(2, 8)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.barrier()
del model, optimizer  # they hold the group; its threads would outlive Python: torch then occasionally ends with SIGABRT
dist.destroy_process_group()
"""
)


def check(folder):
    assert not list(folder.glob("recording*.json")), "no process is recording anymore"
    profile = load(folder)
    assert [(rank.process.rank, len(rank.steps)) for rank in profile.ranks] == [(0, 400), (1, 400)]
    assert [problem for problem in profile.problems if problem.source == "ranks"] == []


def test_two_torchrun_nodes_on_one_machine_share_a_folder(script, start, tmp_path):
    """Both have the same host name; the last to end makes the report of both."""
    program = script(TRAIN)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    nodes = [
        start(
            *(*COMMAND, "--out", "run", "--budget", "0.5", "torchrun", "--nnodes", "2", "--node-rank", number),
            *("--master-addr", "127.0.0.1", "--master-port", port, program),
            env={"OMP_NUM_THREADS": "1"},
        )
        for number in (0, 1)
    ]
    for node in nodes:
        ran = node.finish()
        assert ran.status == 0, ran.err.decode()

    folder = tmp_path / "run"
    assert sorted(path.stem.rpartition("-")[2] for path in find(folder)) == ["node0", "node1"]
    check(folder)
    assert json.loads((folder / "result.json").read_text())["run"]["ranks"] == 2
    first, second = load(folder).ranks
    assert first.windows, "windows of a shared folder are read"
    assert not second.windows, "ranks wait for each other: one's windows are enough"


def test_tasks_of_srun_share_the_folder_of_their_job(script, start, tmp_path):
    """Each task has its own profile-train; none is given a folder to record into."""
    program = script(TRAIN)
    slurm = {**STEP, "SLURM_JOB_ID": "77", "SLURM_NODEID": "0", "SLURM_NTASKS": "2", "SLURM_STEP_NUM_TASKS": "2"}
    tasks = [
        start(
            *(*COMMAND, "run", "--no-report", "--no-windows", program, tmp_path / "rendezvous"),
            env=slurm | {"SLURM_PROCID": str(number), "SLURM_LOCALID": str(number)},
        )
        for number in (0, 1)
    ]
    for task in tasks:
        ran = task.finish()
        assert ran.status == 0, ran.err.decode()

    (folder,) = (tmp_path / "profile-train-runs").iterdir()
    assert folder.name == "slurm-77-0-train"
    check(folder)
