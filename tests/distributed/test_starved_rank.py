"""A rank that shares its core with others: the kernel reports how long it waits for the core."""

import json
import os
import re
import sys
from pathlib import Path

import pytest
from programs import TORCH

from advisor.metrics.base import Metrics
from advisor.metrics.stragglers import straggler_causes
from advisor.runs.load import load

RANKS = (
    TORCH
    + """
import os, subprocess, sys, time, torch
import torch.distributed as dist
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, cores = dist.get_rank(), sorted(os.sched_getaffinity(0))
os.sched_setaffinity(0, {cores[rank]})
plain = {name: value for name, value in os.environ.items() if name != "PROFILE_TRAIN_AGENT"}
hogs = [subprocess.Popen([sys.executable, "-c", "while True: pass"], env=plain) for _ in range(8 * rank)]
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
try:
    for _ in range(60):
        begun = time.thread_time()
        while time.thread_time() < begun + 0.01: pass
        model(torch.ones(2, 8)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.barrier()
finally:
    for hog in hogs: hog.kill()
del model, optimizer
dist.destroy_process_group()
"""
)


@pytest.mark.slow
@pytest.mark.skipif(
    sys.platform != "linux" or len(os.sched_getaffinity(0)) < 2 or not Path("/proc/self/schedstat").exists(),
    reason="needs two cores and a kernel with scheduler statistics",
)
def test_rank_starved_of_cpu_is_named_with_host_cause(script, start_profiled, report):
    words = ("torchrun", "--standalone", "--nproc-per-node", "2", script(RANKS))
    ran = start_profiled(*words, env={"OMP_NUM_THREADS": "1"}).finish()
    assert ran.status == 0, ran.err.decode()
    assert report(ran.folder, "--no-summary").status == 0

    result = json.loads((ran.folder / "result.json").read_text())
    (advice,) = (each for each in result["advice"] if each["rule"] == "straggler-rank")
    assert re.search(r"\brank 1\b", advice["then"])
    causes = Metrics(load(ran.folder))[straggler_causes]
    assert causes[0].name == "host"
