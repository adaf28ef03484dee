"""Split batches train like whole ones."""

import pytest
from programs import TORCH

LOOP = (
    TORCH
    + """
import json, torch
from torch.utils.data import DataLoader, TensorDataset

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    def forward(self, features):
        sizes.append(len(features))
        return self.layers(features)

sizes, updates = [], []
torch.set_num_threads(1)
torch.manual_seed(0)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
optimizer.register_step_post_hook(lambda *_: updates.append(1))
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.99)
scaler = torch.amp.GradScaler("cpu")
data = TensorDataset(torch.randn(50, 8), torch.randn(50, 1))
loader = DataLoader(data, batch_size=12)
other = DataLoader(data, batch_size=12)

def report():
    print("seen:", json.dumps([sizes[:9], model.layers[0].weight.tolist(), scheduler.get_last_lr()[0]]), flush=True)

next(iter(loader))
while True:
    for features, targets in loader:
        loss = torch.nn.functional.mse_loss(model(features), targets)
        UPDATE
        if len(updates) == 20:
            report()
"""
)
LINE = LOOP.splitlines().index("loader = DataLoader(data, batch_size=12)") + 1

AFTER = """
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
"""
BEFORE = """
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=0.01)
        scaler.step(optimizer)
        scaler.update()
        scheduler.step()
"""
CLOSURE = """
        def closure():
            optimizer.zero_grad()
            loss.backward()
            return loss
        optimizer.step(closure)
        scheduler.step()
"""
PLAIN = "loss.backward(); optimizer.step(); optimizer.zero_grad()"


@pytest.fixture
def split(tried, tmp_path):
    """Return a function that runs the loop with this update code and with split batches."""

    def begin(update, line=LINE):
        settings = {"file": str(tmp_path / "project/train.py"), "line": line, "pieces": 4}
        return tried(LOOP.replace("UPDATE", update.strip()), ("micro_batch", settings))

    return begin


@pytest.mark.parametrize("update", [AFTER, BEFORE, CLOSURE], ids=["after", "scaled", "closure"])
def test_micro_batches_train_like_the_whole_batch(tried, split, update):
    plain = tried(LOOP.replace("UPDATE", update.strip()))
    changed = split(update)

    assert not changed.failed
    (sizes, weight, rate), (sizes_before, weight_before, rate_before) = changed.seen[0], plain.seen[0]
    assert sizes_before == [12, 12, 12, 12, 2, 12, 12, 12, 12]
    assert sizes == [3] * 9
    assert rate == rate_before
    for row, row_before in zip(weight, weight_before, strict=True):
        assert row == pytest.approx(row_before, rel=1e-4, abs=1e-6)
    # A step has as many samples as before: 4 pieces, or 2 for the last batch of 2 samples. Its loss is the batch's.
    assert sum(step.count for step in changed.ran.steps) == 30
    (losses,), (losses_before,) = changed.losses, plain.losses
    assert losses[:30] == pytest.approx(losses_before[:30], rel=1e-4)
    assert len(set(losses_before)) > 25


@pytest.mark.parametrize(
    ("update", "why"),
    [
        ("loss.backward(retain_graph=True); " + PLAIN, "2 backward passes per batch"),
        (
            "loss.backward()\n        if len(sizes) % 3 == 0: optimizer.step(); optimizer.zero_grad()",
            "not update its weights after",
        ),
        (
            "loss.backward()\n        for p in model.parameters(): p.grad.mul_(0.5)\n"
            "        optimizer.step(); optimizer.zero_grad()",
            "changes gradients",
        ),
        (
            "loss.backward(); optimizer.step()\n        for p in model.parameters(): p.grad = None",
            "changes gradients",
        ),
        ("loss.backward(torch.tensor(1.0)); optimizer.step(); optimizer.zero_grad()", "start at a scalar loss"),
    ],
)
def test_loop_that_cannot_be_split_is_reported(split, update, why):
    assert any(why in failure for failure in split(update).failed)


def test_batch_that_is_fetched_ahead_is_reported(tried, tmp_path):
    ahead = LOOP.replace("in loader:", "in ahead(loader):").replace(
        "while True:",
        "def ahead(source):\n    source = iter(source)\n    held = next(source)\n    for following in source:\n"
        "        yield held\n        held = following\n    yield held\n\nwhile True:",
    )
    settings = {"file": str(tmp_path / "project/train.py"), "line": LINE, "pieces": 4}
    changed = tried(ahead.replace("UPDATE", PLAIN), ("micro_batch", settings))

    assert "unsuitable" in changed.codes


def test_loader_created_elsewhere_is_left_alone_and_reported(split):
    changed = split(PLAIN, line=LINE + 1)

    assert changed.codes == {"no-target"}
    assert not changed.seen or changed.seen[0][0][0] == 12
