"""What is logged at every step is logged at every k-th; warnings and one-time messages are always logged."""

import pytest
from programs import TORCH

LOOP = (
    TORCH
    + """
import json, logging, os, sys, torch

class Kept(logging.Handler):
    def emit(self, record):
        kept.append([record.levelname, record.args[0]])

kept = []
log = logging.getLogger("train")
log.setLevel(logging.INFO)
log.addHandler(Kept())
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
log.info("begin %d", 0)
for step in range(1, 100):
    loss = model(torch.randn(4, 8)).square().mean() + 0.1
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    SAY
    if step == 4: log.warning("attention: %d", step)
    if step == 20: sys.stdout.write("seen: " + json.dumps([each for each in kept if each[1] <= 10]) + "\\n")
"""
)


def loop(say="log.info('step %d', step)"):
    return LOOP.replace("SAY", say)


def test_every_third_step_is_logged_and_every_warning(tried):
    plain = tried(loop())
    changed = tried(loop(), ("logging", {"every": 3}))

    assert len(plain.seen[0]) == 12
    assert changed.seen == [[["INFO", 0], ["INFO", 3], ["WARNING", 4], ["INFO", 6], ["INFO", 9]]]
    assert changed.losses == plain.losses
    assert not changed.failed


FUNCTION = """
def note(step):
    kept.append(["note", step])
    RETURN

kept = []
"""


@pytest.mark.parametrize("way", ["print('step', step)", "os.fsync(file.fileno())"])
def test_a_function_that_writes_at_every_step_is_called_at_every_third(tried, way):
    function = FUNCTION.replace("RETURN", way).replace("kept = []", "kept, file = [], open('log', 'w')")
    changed = tried(loop("note(step)").replace("kept = []", function), ("logging", {"every": 3}))

    assert [step for name, step in changed.seen[0] if name == "note"] == [1, 2, 3, 4, 5, 6, 9]
    assert changed.losses == tried(loop()).losses
    assert not changed.failed


def test_function_that_returns_a_value_is_called_at_every_step(tried):
    function = FUNCTION.replace("RETURN", "print('step', step); return step")
    changed = tried(loop("assert note(step)").replace("kept = []", function), ("logging", {"every": 3}))

    assert len([name for name, _ in changed.seen[0] if name == "note"]) == 10


@pytest.mark.parametrize(
    ("say", "every"),
    [
        ("if step % 10 == 0: print(step)", 3),
        ("print(step); os.fsync(file.fileno())", 3),
        ("print(step, file=file)", 3),
    ],
)
def test_reports_that_no_output_can_be_skipped(tried, say, every):
    program = loop(say).replace("kept = []", "kept, file = [], open('log', 'w')")
    assert tried(program, ("logging", {"every": every})).failed


@pytest.mark.foreign("tensorboard", "wandb")
def test_trackers_receive_every_third_step(tried):
    pytest.importorskip("tensorboard")
    pytest.importorskip("wandb")
    begin = """
import wandb
from torch.utils.tensorboard import SummaryWriter
writer = SummaryWriter("logs", flush_secs=0)
run = wandb.init(project="x", settings=wandb.Settings(silent=True))
"""
    end = """
    if step == 10:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
        read = EventAccumulator("logs").Reload().Scalars("loss")
        print("seen:", json.dumps([[each.step for each in read], run.step]), flush=True)
"""
    say = "writer.add_scalar('loss', loss, step); writer.flush(); wandb.log({'loss': loss.item()}, step=step)"
    changed = tried(begin + loop(say) + end, ("logging", {"every": 3}))

    assert changed.seen[1] == [[3, 6, 9], 9]
    assert not changed.failed
