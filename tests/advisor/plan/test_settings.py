"""Advice as lines of torch, JSON and YAML: they parse, and match the plan."""

import ast
import json
from itertools import product

from advisor.plan.activations import measured
from advisor.plan.cluster import Cluster, GpuKind
from advisor.plan.memory import MemoryPlan
from advisor.plan.model import OPTIMIZERS, PRECISIONS, Model
from advisor.plan.settings import settings

GB = 1e9


def planned(memory, *, gpus=8, precision="bf16", optimizer="adamw", **more) -> MemoryPlan:
    return MemoryPlan(
        model=Model(parameters=1.5e9, optimizer=optimizer, precision=precision, largest_unit=50e6, hidden=2048),
        cluster=Cluster(gpus=gpus, device=GpuKind("as given", memory * GB), reserve=0.0),
        activations=measured(1e9, 10),
        **more,
    )


def by_tool(plan):
    return {one.tool: one for one in settings(plan)}


def test_every_setting_is_valid_or_says_why_there_is_none(subtests):
    for memory, precision, gpus, optimizer in product(
        [40, 27, 10, 6.9, 6.1, 4.5, 1.6, 0.5], PRECISIONS, [1, 8], OPTIMIZERS
    ):
        with subtests.test(memory=memory, precision=precision, gpus=gpus, optimizer=optimizer):
            plan = planned(memory, precision=precision, gpus=gpus, optimizer=optimizer)
            for one in settings(plan):
                check(one, plan)


def check(one, plan):
    if one.code is None:
        assert one.note
        return
    if one.language == "python":
        nodes = list(ast.walk(ast.parse(one.code)))
        names = {node.id for node in nodes if isinstance(node, ast.Name)}
        stored = {alias.asname or alias.name for node in nodes for alias in getattr(node, "names", ())}
        assert {"DistributedDataParallel", "fully_shard", "checkpoint_wrapper"} & names <= stored
    elif one.language == "json":
        assert json.loads(one.code)["zero_optimization"]["stage"] == plan.choice.account.placement.stage
    else:
        assert all(":" in line for line in one.code.splitlines())
    assert max(map(len, one.code.splitlines())) <= 78


def test_stage_1_uses_zero_redundancy_optimizer():
    found = by_tool(planned(27))

    assert "ZeroRedundancyOptimizer(" in found["torch"].code
    assert "optimizer_class=torch.optim.AdamW" in found["torch"].code
    assert json.loads(found["DeepSpeed"].code)["bf16"] == {"enabled": True}
    assert "zero_stage: 1" in found["accelerate"].code


def test_stage_2_keeps_weights_gathered_and_stage_3_does_not():
    two, three = by_tool(planned(10)), by_tool(planned(4.5))

    assert "reshard_after_forward=False" in two["torch"].code
    assert "fsdp_reshard_after_forward: false" in two["accelerate"].code
    assert "reshard_after_forward=True" in three["torch"].code
    assert "fsdp_reshard_after_forward: true" in three["accelerate"].code


def test_checkpointing_every_nth_block():
    code = by_tool(planned(6.9))["torch"].code

    assert "range(0, len(blocks), 4)" in code
    assert code.index("checkpoint_wrapper(blocks") < code.index("fully_shard(block")


def test_8_bit_optimizer_under_fsdp_uses_torchao():
    found = by_tool(planned(6.1))

    assert "torchao.optim.AdamW8bit(model.parameters(), lr=lr)" in found["torch"].code
    assert json.loads(found["DeepSpeed"].code)["zero_allow_untested_optimizer"] is True


def test_offload():
    some, everything = by_tool(planned(1.6)), by_tool(planned(0.5))

    assert some["torch"].code is None
    assert json.loads(some["DeepSpeed"].code)["zero_optimization"]["offload_optimizer"]["device"] == "cpu"
    assert "offload_param" not in json.loads(some["DeepSpeed"].code)["zero_optimization"]
    assert "offload_optimizer_device: cpu" in some["accelerate"].code
    assert "CPUOffloadPolicy()" in everything["torch"].code
    assert "offload_param" in json.loads(everything["DeepSpeed"].code)["zero_optimization"]


def test_pure_bf16_weights_enable_bf16():
    found = by_tool(planned(4, gpus=1, precision="pure-bf16"))

    assert json.loads(found["DeepSpeed"].code)["bf16"] == {"enabled": True}
    assert "mixed_precision: bf16" in found["accelerate"].code


def test_batch_sizes_match_plan():
    config = json.loads(by_tool(planned(40, target_batch=512, micro_batch=4))["DeepSpeed"].code)

    assert (config["train_micro_batch_size_per_gpu"], config["gradient_accumulation_steps"]) == (4, 16)


def test_master_copy_requires_deepspeed():
    found = by_tool(planned(20, precision="bf16-master"))

    assert found["torch"].code is None
    assert found["DeepSpeed"].code is not None
    assert "distributed_type: DEEPSPEED" in found["accelerate"].code


def test_what_does_not_fit_has_no_settings():
    plan = planned(0.1)

    assert plan.choice is None
    assert settings(plan) == ()
