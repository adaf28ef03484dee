"""Ray Train on a real cluster of two nodes: each of four workers is a rank of one run."""

import json
import re
import sys

import pytest
from programs import ROOT

from profiler.agent.hooks.ray_data import BLOCKS

pytestmark = pytest.mark.foreign("ray")

DRIVER = """
import os, signal, sys, time
import ray
from ray.cluster_utils import Cluster
from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer
from profiler.integrations.ray import ProfileTrainCallback

def loop(config):
    import torch, ray.train
    from ray.train.torch import prepare_model
    torch.set_num_threads(1)
    rank = ray.train.get_context().get_world_rank()
    model = prepare_model(torch.nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    for step in range(60):
        if rank == config["slow"]:
            time.sleep(0.1)
        if rank == config["killed"] and step == 40 and not os.path.exists("killed"):
            open("killed", "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        model(torch.randn(8, 64)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

if __name__ == "__main__":
    config = json.loads(sys.argv[1])
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    cluster.add_node(num_cpus=2)
    ray.init(address=cluster.address)
    trainer = TorchTrainer(
        loop,
        train_loop_config=config,
        scaling_config=ScalingConfig(num_workers=4),
        run_config=RunConfig(
            storage_path=os.path.abspath("storage"),
            failure_config=FailureConfig(max_failures=1),
            callbacks=[ProfileTrainCallback(out="run", windows=False)],
        ),
    )
    trainer.fit()
    ray.shutdown()
    cluster.shutdown()
"""


@pytest.fixture
def fit(script, start, tmp_path):
    """Run the driver; return result.json."""

    def fit(**config):
        env = {"PYTHONPATH": str(ROOT), "RAY_TRAIN_V2_ENABLED": "1", "OMP_NUM_THREADS": "1"}
        words = (sys.executable, script("import json\n" + DRIVER), json.dumps({"slow": None, "killed": None} | config))
        ran = start(*words, folder=tmp_path / "run", env=env).finish()
        assert ran.status == 0, ran.err.decode()
        return json.loads((tmp_path / "run/result.json").read_text())

    return fit


def test_slow_ray_worker_is_named(fit):
    result = fit(slow=1)

    assert result["ranks"]["count"] == 4
    assert {rank["steps"] for rank in result["ranks"]["each"]} == {60}
    straggler = next(advice for advice in result["advice"] if advice["rule"] == "straggler-rank")
    assert re.search(r"\brank 1\b", straggler["then"], re.IGNORECASE)


def test_run_contains_both_starts_after_a_worker_is_killed(fit, tmp_path):
    result = fit(killed=3)

    assert result["ranks"]["count"] == 4
    assert {rank["steps"] for rank in result["ranks"]["each"]} == {60}
    assert len(list((tmp_path / "run").glob("run-*.db"))) == 8


READS = """
import time
import ray, torch

def slow(batch):
    time.sleep(0.2)
    return batch

if __name__ == "__main__":
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
    data = ray.data.range(32, override_num_blocks=8).map_batches(slow, batch_size=None)
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    for batch in data.iter_torch_batches(batch_size=4):
        model(batch["id"].float()[:, None]).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    ray.shutdown()
"""


def test_batch_waits_and_block_fetches_are_recorded(script, run_profiled):
    ran = run_profiled(script(READS))

    assert ran.status == 0, ran.err.decode()
    assert [step.data_wait is not None for step in ran.steps] == [True] * 8
    (blocks,) = ran.facts("region")
    assert (blocks.name, blocks.count) == (BLOCKS, 8)
    assert blocks.seconds > 0
