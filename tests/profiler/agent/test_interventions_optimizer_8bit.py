"""bitsandbytes creates the optimizer instead of torch; here a stand-in for it does, without 8-bit state."""

import pytest
from programs import TORCH

BITSANDBYTES = (
    TORCH
    + """
import torch

class optim:
    class AdamW8bit(torch.optim.AdamW):
        def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2, amsgrad=False):
            super().__init__(params, lr, betas, eps, weight_decay, amsgrad)
"""
)
LOOP = (
    TORCH
    + """
import torch
from torch.optim import AdamW
model = torch.nn.Linear(8, 1)
optimizer = AdamW(model.parameters(), 0.01, weight_decay=0.1, fused=True, maximize=MAXIMIZE)
assert isinstance(optimizer, torch.optim.AdamW)
for step in range(100):
    loss = model(torch.randn(4, 8)).square().mean() + 0.1
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
)
CHANGE = ("optimizer_8bit", {"name": "AdamW"})


@pytest.fixture
def stand_in(script):
    script(BITSANDBYTES, "project/bitsandbytes.py")


def loop(maximize=False):
    return LOOP.replace("MAXIMIZE", str(maximize))


@pytest.mark.usefixtures("stand_in")
def test_8bit_optimizer_takes_arguments_of_the_plain_one(tried):
    plain = tried(loop())
    changed = tried(loop(), CHANGE)

    assert [fact.name for fact in plain.ran.facts("optimizer")] == ["AdamW"]
    assert [fact.name for fact in changed.ran.facts("optimizer")] == ["AdamW8bit"]
    assert changed.losses[0] == pytest.approx(plain.losses[0], rel=1e-4)
    assert not changed.failed


@pytest.mark.usefixtures("stand_in")
def test_unsupported_argument_ends_the_program(tried):
    changed = tried(loop(maximize=True), CHANGE)

    assert b"maximize" in changed.ran.out.splitlines()[-1]
    assert changed.ran.run.outcome == "failed"


@pytest.mark.usefixtures("stand_in")
def test_another_optimizer_is_not_replaced(tried):
    text = loop().replace("AdamW", "Adam")

    assert tried(text, CHANGE).codes == {"no-target"}


def test_missing_bitsandbytes_is_reported(tried):
    text = "import sys\nsys.modules['bitsandbytes'] = None\n" + loop()

    assert "bitsandbytes" in tried(text, CHANGE).failed[0]
