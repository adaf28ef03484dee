"""DistributedDataParallel is created with the given arguments, and sends gradients in the given data type."""

import pytest
from programs import ENDS_GROUP, TORCH

LOOP = (
    ENDS_GROUP
    + TORCH
    + """
import os, torch
import torch.distributed as dist
os.environ.update(RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
torch.set_num_threads(1)
dist.init_process_group("gloo")
net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
model = torch.nn.parallel.DistributedDataParallel(net, bucket_cap_mb=2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(100):
    loss = model(torch.randn(4, 8)).square().mean() + 0.1
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
)


def ddp(tried):
    (fact,) = tried.ran.facts("ddp")
    return fact


def test_gradients_are_reduced_in_16_bits(tried):
    plain = tried(LOOP)
    changed = tried(LOOP, ("ddp_hook", {"dtype": "float16"}))

    assert not ddp(plain).comm_hook
    assert ddp(changed).comm_hook == "fp16_compress_hook"
    assert changed.losses != plain.losses
    assert changed.losses[0] == pytest.approx(plain.losses[0], rel=0.01)
    assert not changed.failed


def test_ddp_arguments_replace_those_of_the_program(tried):
    arguments = {"bucket_cap_mb": 7, "gradient_as_bucket_view": True}
    plain = tried(LOOP)
    changed = tried(LOOP, ("ddp_hook", {"arguments": arguments}))

    assert (ddp(plain).bucket_cap, ddp(plain).gradient_as_bucket_view) == (2 << 20, False)
    assert (ddp(changed).bucket_cap, ddp(changed).gradient_as_bucket_view) == (7 << 20, True)
    assert changed.losses == plain.losses
    assert not changed.failed


def test_hook_that_torch_refuses_is_reported(tried):
    """A model takes one hook, and this model has the program's own."""
    own = "from torch.distributed.algorithms.ddp_comm_hooks import default_hooks\n"
    own += "model.register_comm_hook(None, default_hooks.fp16_compress_hook)\noptimizer ="
    changed = tried(LOOP.replace("optimizer =", own, 1), ("ddp_hook", {"dtype": "float16"}))

    assert len(changed.failed) == 1
    assert len(changed.losses[0]) >= 30


@pytest.mark.parametrize("settings", [{}, {"arguments": {"bucket_size": 3}}, {"dtype": "int8"}])
def test_invalid_settings_are_reported(tried, settings):
    assert tried(LOOP, ("ddp_hook", settings)).failed
