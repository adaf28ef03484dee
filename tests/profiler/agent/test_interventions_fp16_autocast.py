"""Models compute in float16, and updates use a scaler; the program sees gradients and losses as before."""

import pytest
from programs import TORCH

LOOP = (
    TORCH
    + """
import json, torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = torch.nn.Linear(16, 1)
    def forward(self, features):
        result = self.lin(features)
        dtypes.append(str(result.dtype))
        return result

dtypes, norms = [], []
torch.set_num_threads(1)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.999)
for step in range(100):
    STEP
    scheduler.step()
    if step == 20: print("seen:", json.dumps([dtypes[-1], norms]), flush=True)
"""
)
PLAIN = """
    loss = SIZE * model(torch.randn(4, 16)).square().mean() + 0.1
    loss.backward()
    CLIP
    optimizer.step()
    optimizer.zero_grad()
"""
CLIPPED = "norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5).item())"
TWO_PASSES = PLAIN.replace("CLIP", "(0.5 * model(torch.randn(4, 16)).square().mean()).backward()\n    CLIP")
CLOSURE = """
    def closure():
        optimizer.zero_grad()
        loss = SIZE * model(torch.randn(4, 16)).square().mean() + 0.1
        loss.backward()
        return loss
    assert optimizer.step(closure).requires_grad
"""
CHANGE = ("fp16_autocast", {})


def loop(step=PLAIN, size="1", clip="pass"):
    return LOOP.replace("STEP", step.strip()).replace("SIZE", size).replace("CLIP", clip)


STEPS = [TWO_PASSES, *(pytest.param(each, marks=pytest.mark.slow) for each in (PLAIN, CLOSURE))]


@pytest.mark.parametrize("step", STEPS)
def test_float16_training_matches_float32_training(tried, step):
    plain = tried(loop(step, clip=CLIPPED))
    changed = tried(loop(step, clip=CLIPPED), ("fp16_autocast", {"initial_scale": 256.0}))

    assert not changed.failed
    (dtype, norms), (_, expected) = changed.seen[0], plain.seen[0]
    assert dtype == "torch.float16"
    assert norms == pytest.approx(expected, rel=0.05)
    assert changed.losses[0] == pytest.approx(plain.losses[0], rel=0.05)
    assert changed.losses != plain.losses
    (scaler,) = changed.ran.facts("scaler")
    assert (scaler.steps, scaler.skipped) == (30, 0)


@pytest.mark.slow
def test_small_gradients_survive_and_too_large_scale_recovers(tried):
    """Without a scale, 1e-8 is 0 in float16; with a scale of 2**30, the first updates overflow."""
    small = loop(size="1e-8", clip="norms.append(model.lin.weight.grad.abs().max().item() > 0)")
    plain, scaled = tried(small, ("autocast", {"dtype": "float16"})), tried(small, CHANGE)
    large = tried(loop(), ("fp16_autocast", {"initial_scale": 2.0**30}))

    assert not any(plain.seen[0][1])
    assert all(scaled.seen[0][1])
    (scaler,) = large.ran.facts("scaler")
    assert 5 < scaler.skipped < 20
    assert scaler.steps - scaler.skipped == 30
    assert not large.failed


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step", "why"),
    [
        (PLAIN.replace("CLIP", "model.lin.weight.grad.mul_(0.5)"), "changes gradients between"),
        (PLAIN.replace("loss.backward()", "torch.autograd.backward(loss)"), "does not start with `loss.backward()`"),
        (
            PLAIN.replace("loss.backward()", "scaler.scale(loss).backward()").replace(
                "optimizer.step()", "scaler.step(optimizer); scaler.update()"
            ),
            "scales its loss itself",
        ),
    ],
)
def test_gradients_that_cannot_be_scaled_transparently_are_reported(tried, step, why):
    program = loop(step).replace("dtypes, norms", "scaler = torch.amp.GradScaler('cpu')\ndtypes, norms")

    assert why in tried(program, CHANGE).failed[0]
