"""One slow rank among several that really reduce gradients: it is named, with the cause if that was measured."""

import json

import pytest
from programs import NUMPY_TORCH, ON_RANKS

from advisor.metrics.base import Metrics
from advisor.metrics.stragglers import straggler_causes
from advisor.runs.load import load

RANKS = (
    NUMPY_TORCH
    + """
import os, sys, time, torch
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, how = dist.get_rank(), sys.argv[1]
slow = rank == 2

class Data(torch.utils.data.Dataset):
    def __len__(self): return 100_000
    def __getitem__(self, index):
        if slow and how == "data": time.sleep(0.02)
        return torch.ones(64)

net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 1))
model = torch.nn.parallel.DistributedDataParallel(net)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
loader = iter(DataLoader(Data(), 16 if slow and how == "batches" else 2))
for step in range(50):
    inputs = next(loader)
    time.sleep(0.0025 * len(inputs))  # a model whose time grows with its batch, on a machine with no core to spare
    if slow and how == "other": time.sleep(0.04)
    loss = model(inputs).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if slow and how == "saving":
        torch.save(net.state_dict(), Slow())
dist.barrier()
del model, optimizer
dist.destroy_process_group()
"""
)
SLOW = """
class Slow:
    def write(self, data):
        time.sleep(0.01)
        return len(data)
    def flush(self): pass
"""
WHY = {
    "data": ["data"],
    "batches": ["batches"],
    "saving": ["saving"],
    "other": [],
}


@pytest.mark.parametrize("how", ["data", *(pytest.param(how, marks=pytest.mark.slow) for how in WHY if how != "data")])
def test_the_slow_rank_is_named_and_why(script, start_profiled, report, how):
    program = script(RANKS.replace("\nnet =", SLOW + "\nnet ="))
    words = (*ON_RANKS, 4, program, how)
    ran = start_profiled(*words, env={"OMP_NUM_THREADS": "1"}).finish()
    assert ran.status == 0, ran.err.decode()

    assert report(ran.folder, "--no-summary").status == 0
    result = json.loads((ran.folder / "result.json").read_text())

    advice = {each["rule"]: each for each in result["advice"]}
    assert "straggler-rank" in advice, [each for each in result["verdicts"] if each["rule"] == "straggler-rank"]
    assert advice["straggler-rank"]["then"].startswith("Rank 2 ")
    causes = Metrics(load(ran.folder))[straggler_causes]
    assert [cause.name for cause in causes][:1] == WHY[how]
    assert all(cause.text in advice["straggler-rank"]["then"] for cause in causes[:1])
