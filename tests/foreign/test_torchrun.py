"""torch's own parallel training, two ranks over gloo."""

import json

import pytest
from programs import ON_RANKS, ROOT

pytestmark = pytest.mark.foreign

RANKS = """
import torch.distributed as dist
from torch.utils.data.distributed import DistributedSampler

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(128, 512), nn.Linear(512, 128)
    def forward(self, inputs): return inputs + self.down(torch.relu(self.up(inputs)))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.head = nn.Linear(128, 1)
    def forward(self, inputs):
        for block in self.blocks: inputs = block(inputs)
        return self.head(inputs)

if __name__ == "__main__":
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = Net()
    if sys.argv[1] == "ddp":
        wrapped = nn.parallel.DistributedDataParallel(model)
    else:
        from torch.distributed.fsdp import fully_shard
        for block in model.blocks: fully_shard(block)
        wrapped = fully_shard(model)
    optimizer = torch.optim.AdamW(wrapped.parameters(), lr=1e-3, fused=True)
    data = Rows(torch.randn(1280, 128), torch.randn(1280, 1))
    sampler = DistributedSampler(data, seed=0)
    loader = DataLoader(data, 32, sampler=sampler, num_workers=1, persistent_workers=True, collate_fn=tuple)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for inputs, targets in loader:
            loss = nn.functional.mse_loss(wrapped(inputs), targets)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        tell(rank, epoch, loss.item())
    dist.barrier()
    del model, wrapped, optimizer, loss
    dist.destroy_process_group()
"""


@pytest.mark.parametrize(("way", "wrapper"), [("ddp", "DistributedDataParallel"), ("fully_shard", "FSDPModule")])
def test_ddp_and_fsdp_ranks_are_recorded(judge, way, wrapper):
    launcher = ("torchrun", "--standalone", "--nproc-per-node", "2") if way == "ddp" else (*ON_RANKS, 2)
    found = judge(RANKS, way, launcher=launcher, light=True)

    assert sorted((rank.rank, rank.world_size) for rank in found.ran.ranks) == [(0, 2), (1, 2)]
    for rank in (0, 1):
        steps = found.of(rank)
        assert len(steps) == 40
        assert [(step.micro_steps, step.batches) for step in steps] == [(1.0, 1.0)] * 40
        assert all(step.forward > 0 and step.backward > 0 and step.optimizer > 0 for step in steps)
    ranks = {rank.pid for rank in found.ran.ranks}
    assert {worker.parent for worker in found.ran.workers} == ranks
    for model, optimizer in zip(found.ran.facts("model"), found.ran.facts("optimizer"), strict=True):
        assert (model.name, model.wrappers) == ("Net", (wrapper,))
        assert (model.block, model.blocks) == ("Block", 3)
        assert optimizer.tensors == model.tensors == 14
        assert optimizer.parameters == model.parameters
        # AdamW keeps two tensors per parameter; when sharded, each rank has half of them.
        assert optimizer.state_bytes == pytest.approx(2 * model.bytes / (1 if way == "ddp" else 2), rel=0.02)
        assert optimizer.gradient_bytes == pytest.approx(model.bytes / (1 if way == "ddp" else 2), rel=0.02)
    flags = found.flags()
    assert (flags["ddp"], flags["fsdp"]) == (way == "ddp", way != "ddp")
    assert flags["zero_stage"] == (None if way == "ddp" else 3)
    assert found.result["run"]["ranks"] == 2


SHARDED = """
import json, os, sys, torch
import torch.distributed as dist
from torch import nn
from torch.distributed._composable.replicate_with_fsdp import replicate
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.distributed.optim import ZeroRedundancyOptimizer
from profiler.agent import facts

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(32, 64), nn.Linear(64, 32)
    def forward(self, inputs): return self.down(torch.relu(self.up(inputs)))

def net(): return nn.Sequential(Block(), Block(), nn.Linear(32, 1))

def fsdp2(blocks=True, **how):
    model = net()
    for block in list(model)[:2] if blocks else (): fully_shard(block, **how)
    return fully_shard(model, **how)

def fsdp1(strategy, blocks=True):
    policy = ModuleWrapPolicy({Block}) if blocks else None
    cpu = torch.device("cpu")
    return FullyShardedDataParallel(net(), sharding_strategy=strategy, auto_wrap_policy=policy, device_id=cpu)

def ddp(): return nn.parallel.DistributedDataParallel(net())

dist.init_process_group("gloo")
for name, model in {
    "plain": net(),
    "ddp": ddp(),
    "replicate": replicate(net()),
    "zero-redundancy": ddp(),
    "blocks": fsdp2(),
    "blocks-resharded": fsdp2(reshard_after_forward=True),
    "blocks-kept": fsdp2(reshard_after_forward=False),
    "one-unit": fsdp2(blocks=False),
    "FULL_SHARD": fsdp1(ShardingStrategy.FULL_SHARD),
    "SHARD_GRAD_OP": fsdp1(ShardingStrategy.SHARD_GRAD_OP),
    "NO_SHARD": fsdp1(ShardingStrategy.NO_SHARD),
    "FULL_SHARD-of-one-unit": fsdp1(ShardingStrategy.FULL_SHARD, blocks=False),
}.items():
    kind = ZeroRedundancyOptimizer if name == "zero-redundancy" else None
    optimizer = kind(model.parameters(), torch.optim.Adam) if kind else torch.optim.Adam(model.parameters())
    for _ in range(2):
        model(torch.randn(4, 32)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    fact = facts.optimizer(optimizer, 1, None)
    whole = 2 * 4 * sum(parameter.numel() for parameter in net().parameters())
    found = name, facts.zero_stage([facts.sharding(model)], [fact]), round(fact["state_bytes"] / whole, 1)
    if dist.get_rank() == 0: print("found: " + json.dumps(found), flush=True)
    described = facts.model(model, 1)
    assert described["name"] == "Sequential"
    assert described.get("block") == (None if name == "FULL_SHARD-of-one-unit" else "Block")
dist.barrier()
dist.barrier()
sys.stdout.flush()
os._exit(0)  # with this many groups, gloo's threads occasionally abort interpreter shutdown
"""


def test_sharding_stage_and_optimizer_state_share_are_recorded(script, start):
    """Stage of ZeRO, and the rank's part of the optimizer's state."""
    ran = start(
        *(*ON_RANKS, 2, script(SHARDED)),
        env={"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
    ).finish()
    assert ran.status == 0, ran.err.decode()
    lines = [line for line in ran.out.decode().splitlines() if line.startswith("found: ")]
    assert {name: found for name, *found in (json.loads(line[7:]) for line in lines)} == {
        "plain": [None, 1.0],
        "ddp": [None, 1.0],
        "replicate": [None, 1.0],
        "zero-redundancy": [1, 0.5],
        "blocks": [3, 0.5],
        "blocks-resharded": [3, 0.5],
        "blocks-kept": [2, 0.5],
        "one-unit": [2, 0.5],
        "FULL_SHARD": [3, 0.5],
        "SHARD_GRAD_OP": [2, 0.5],
        "NO_SHARD": [0, 1.0],
        "FULL_SHARD-of-one-unit": [2, 0.5],
    }
