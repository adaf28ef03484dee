import subprocess
import sys
import time

import pytest
from programs import TORCH

from profiler.attach import target
from profiler.attach.recording import Wanted, record
from profiler.store import find, read

TRAINS = (
    TORCH
    + """
import torch, torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset
dist.init_process_group("gloo")
torch.set_num_threads(1)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = DataLoader(TensorDataset(torch.randn(400, 8)), batch_size=4, num_workers=1, persistent_workers=True)
while True:
    for (x,) in data:
        model(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        open(f"trains-{dist.get_rank()}", "w").close()
"""
)


@pytest.mark.slow
@pytest.mark.usefixtures("asked")
def test_launcher_ranks_are_recorded_without_loader_workers(tmp_path):
    (tmp_path / "train.py").write_text(TRAINS)
    launcher = subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train.py"],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        while len(list(tmp_path.glob("trains-*"))) < 2:
            assert launcher.poll() is None
            time.sleep(0.1)
        ranks = target.ranks(launcher.pid)
        folder, notes = record(Wanted(pid=launcher.pid, tree=True, steps=20, windows=False, out=tmp_path / "run"))
    finally:
        launcher.terminate()
        launcher.wait()

    (node,) = map(read, find(folder))
    assert notes == ()
    assert len(ranks) == 2
    assert sorted(process.pid for process in node.processes if process.role == "rank") == sorted(ranks)
    assert node.runs[-1].outcome == "attached"


def test_interpreter_is_dropped_from_shown_command():
    assert target.as_typed(("/opt/bin/python3.11", "train.py", "--lr", "1")) == ("train.py", "--lr", "1")
    assert target.as_typed(("python", "-m", "package.train")) == ("-m", "package.train")
    assert target.as_typed(("python", "-u", "train.py")) == ("python", "-u", "train.py")
    assert target.as_typed(("trainer", "x")) == ("trainer", "x")


@pytest.mark.process
def test_run_folder_is_named_after_module(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trains.py").write_text("import time; print(flush=True); time.sleep(60)")
    program = subprocess.Popen([sys.executable, "-m", "trains"], cwd=tmp_path, stdout=subprocess.PIPE)
    try:
        program.stdout.readline()  # until then, the kernel may not have its arguments yet
        folder, _ = record(Wanted(pid=program.pid, outside=True, seconds=0.1))
    finally:
        program.kill()
        program.wait()
        program.stdout.close()

    assert folder.name.endswith("-trains")
