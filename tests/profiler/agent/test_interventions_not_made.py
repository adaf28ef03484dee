"""A change that finds nothing to change is reported; otherwise the trial would measure the unchanged program."""

import pytest
from programs import TORCH

LOOP = (
    TORCH
    + """
import os, sys
os.environ["OMP_NUM_THREADS"] = "1"
sys.modules["bitsandbytes"] = None
import torch
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(STEPS):
    torch.set_num_threads(1)
    loss = model(torch.ones(2, 4)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
)
ELSEWHERE = {"file": "other.py", "line": 1}
CHANGES = {
    ("loader", "num_workers"): ({**ELSEWHERE, "num_workers": 2}, "No DataLoader was created at other.py:1."),
    ("loader", "non_blocking"): ({**ELSEWHERE, "non_blocking": True}, "No pinned batch was copied to a GPU"),
    ("fused_optimizer", "name"): ({"name": "Adam"}, "No Adam with a fused implementation was found"),
    ("flags", "threads"): ({"threads": 2}, "The program itself sets this switch."),
    ("flags", "anomaly"): ({"anomaly": False}, "Anomaly detection was never switched on."),
    ("channels_last", ""): ({}, "No model has a 2-D convolution."),
    ("checkpointing", "block"): ({"block": "Block"}, "No model contains a module of class Block."),
    ("selective_recompute", "block"): ({"block": "Brick"}, "No model contains a module of class Brick."),
    ("micro_batch", "pieces"): (
        {**ELSEWHERE, "pieces": 2},
        "No batch of a DataLoader created at other.py:1 was split.",
    ),
    ("zero_redundancy", "name"): ({"name": "AdamW"}, "No AdamW was created for a model in DistributedDataParallel."),
    ("fsdp2", ""): ({}, "No model was wrapped in DistributedDataParallel."),
    ("no_sync", "passes"): ({"passes": 2}, "No model is wrapped in DistributedDataParallel."),
    ("no_sync", ""): ({"passes": 1}, "Each update has only one backward pass"),
    ("ddp_hook", "dtype"): ({"dtype": "float16"}, "No model is wrapped in DistributedDataParallel."),
    ("environment", "variables"): ({"variables": {"OMP_NUM_THREADS": "2"}}, "The program itself sets"),
    ("evaluation", ""): ({}, "No model ran in eval mode with gradients enabled."),
    ("optimizer_8bit", "name"): ({"name": "AdamW"}, "bitsandbytes"),
    ("logging", "every"): ({"every": 3}, "No log output could be skipped."),
}


@pytest.mark.parametrize("steps", [pytest.param(100, marks=pytest.mark.slow), 25])
def test_every_change_without_effect_is_reported(tried, steps):
    """Also for a program that ends before the trial does."""
    changed = tried(LOOP.replace("STEPS", str(steps)), *((name, each[0]) for (name, _), each in CHANGES.items()))

    failures = changed.failed
    assert [missing for _, missing in CHANGES.values() if not any(missing in each for each in failures)] == []
    assert all("\n" not in each and each.endswith(".") for each in failures)


@pytest.mark.slow
def test_model_that_is_not_compiled_is_reported(tried):
    changed = tried(
        "import os\nos.environ['TORCHDYNAMO_DISABLE'] = '1'\n" + LOOP.replace("STEPS", "100"), ("compile", {})
    )

    assert changed.codes == {"no-target"}
