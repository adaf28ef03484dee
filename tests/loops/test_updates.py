"""How the weights are updated: several optimizers, closures, accumulation, scalers that skip, none at all; failures."""

import pytest
from programs import ROOT

from profiler.schema import TAG_EVALUATION

SLEEP = 0.002

UPDATES = """
class Fails(Model):
    def forward(self, x):
        result = super().forward(x)
        if x.sum() > 100: raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        if x.sum() < -100: result.register_hook(lambda gradient: 1 / 0)
        return result

batch = torch.ones(4, 8)
model, fails, generator, critic = Model(), Fails(), Model(inputs=4, outputs=8), Model()
# Models are looked for in the first steps: all are called there.
warm = torch.optim.SGD([*model.parameters(), *fails.parameters(), *critic.parameters(), *generator.parameters()], 1e-3)
for _ in range(4):
    (model(batch) + fails(batch) + critic(generator(torch.ones(4, 4)))).square().mean().backward()
    warm.step()
    warm.zero_grad()
tell("warm", steps=4, forwards=16)

first = torch.optim.Adam(critic.parameters())
second = torch.optim.Adam(generator.parameters())
def gan(critics):
    for _ in range(critics):
        fake = generator(torch.randn(4, 4))
        first.zero_grad()
        (critic(fake.detach()).mean() - critic(batch).mean()).backward()
        first.step()
    second.zero_grad()
    loss = -critic(generator(torch.randn(4, 4))).mean()
    loss.backward()
    second.step()
    return loss.item()
tell("gan", steps=6, forwards=6 * 5, losses=[gan(1) for _ in range(6)])
# Where one of them steps more often, each of its updates but the last of a round ends a step.
tell("critic", steps=4 * 3, forwards=4 * 11, losses=[gan(3) for _ in range(4)])

lbfgs = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=2)
calls = 0
def closure():
    global calls
    calls += 1
    lbfgs.zero_grad()
    loss = model(batch).square().mean()
    loss.backward()
    return loss
losses = [lbfgs.step(closure).item() for _ in range(5)]
tell("lbfgs", steps=5, forwards=calls, losses=losses)

optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
losses = []
for step, each in enumerate(DataLoader(Slow(48), 4), 1):
    loss = model(each).square().mean() / 3
    loss.backward()
    losses.append(loss.item())
    if step % 3 == 0:
        optimizer.step()
        optimizer.zero_grad()
tell("accumulated", steps=4, forwards=12, losses=losses)

scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=100)
losses = []
for step in range(10):
    loss = model(batch).square().mean()
    scaler.scale(loss * (float("inf") if step in (2, 3, 7) else 1.0)).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    losses.append(loss.item())
tell("scaled", steps=7, forwards=10, losses=losses, skipped=3)

scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=8)
losses = []
for _ in range(8):
    loss = model(batch).square().mean()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    scheduler.step()
    optimizer.zero_grad()
    losses.append((loss.item(), scheduler.get_last_lr()[0]))
tell("scheduled", steps=8, forwards=8, losses=losses)

optimizer = torch.optim.SGD(fails.parameters(), lr=0.01)
class Marked(Slow):
    def __getitem__(self, index):
        number = index // 4
        return super().__getitem__(index) + (100 if number in (3, 4, 5) else -200 if number in (8, 9) else 0)
losses = []
failed = 0
for each in DataLoader(Marked(48), 4):
    try:
        losses.append(update(fails, optimizer, each))
    except (torch.OutOfMemoryError, ZeroDivisionError):
        failed += 1
        optimizer.zero_grad()
tell("failed", steps=7, forwards=12, losses=losses, failed=failed)
"""


def test_every_kind_of_update_is_recorded(loop, run_both, parts):
    plain, profiled = run_both(loop(UPDATES))

    assert (plain.status, plain.out) == (profiled.status, profiled.out)
    found = parts(profiled)
    for part in found.values():
        assert part.total("forward") >= part.done.forwards * SLEEP
        assert all(step.backward > 0 and step.optimizer > 0 for step in part.steps)
        assert not part.tagged(TAG_EVALUATION)
    assert [step.micro_steps for step in found["accumulated"].steps] == [3.0] * 4
    assert [step.batches for step in found["accumulated"].steps] == [3.0] * 4
    # An update that the scaler skips does not end a step: its passes belong to the step that ends with the next update.
    assert [step.micro_steps for step in found["scaled"].steps] == [1.0, 1.0, 3.0, 1.0, 1.0, 2.0, 1.0]
    (scaler,) = profiled.facts("scaler")
    assert (scaler.steps, scaler.skipped) == (10, found["scaled"].done.skipped)
    # A failed batch is part of the step that ends with the next update, and changes nothing else.
    failed = found["failed"]
    assert failed.done.failed == 5
    assert [step.batches for step in failed.steps] == [1, 1, 1, 4, 1, 3, 1]
    assert [step.tags for step in failed.steps[1:]] == [0] * 6
    assert failed.steps[3].forward >= 4 * SLEEP  # one pass, and three that failed
    assert profiled.facts("flags")[0].evaluation_grad is None
    assert profiled.ranks[0].events_lost == 0


PLAYS = """
policy = Model()
optimizer = torch.optim.SGD(policy.parameters(), lr=0.01)

def play(moves):
    policy.eval()
    with torch.no_grad():
        state = torch.ones(4, 8)
        for _ in range(moves):
            state = state + policy(state)
            time.sleep(SLEEP)
    policy.train()
    return state

losses = [update(policy, optimizer, play(3)) for _ in range(30)]
tell("each step", steps=30, forwards=120, losses=losses)
losses = []
for _ in range(5):
    state = play(6)
    losses += [update(policy, optimizer, state) for _ in range(4)]
tell("now and then", steps=20, forwards=20, losses=losses)
"""


def test_only_occasional_rollouts_count_as_evaluation(loop, start_plain, start_profiled, parts, judged):
    program = loop(PLAYS)
    plain, profiled = start_plain(program), start_profiled(program, options=("--no-windows",))
    plain, profiled = plain.finish(), profiled.finish()

    assert (plain.status, plain.out) == (profiled.status, profiled.out)
    found = parts(profiled)
    each, seldom = found["each step"], found["now and then"]
    assert not each.tagged(TAG_EVALUATION)
    assert each.total("forward") >= each.done.forwards * SLEEP
    assert each.total("other") >= 90 * SLEEP
    # The first of these rollouts is no evaluation: every step before it had rollouts, too.
    assert seldom.tagged(TAG_EVALUATION) == [4, 8, 12, 16]
    assert seldom.total("evaluation") >= 4 * 6 * SLEEP
    result, advice = judged(profiled)
    assert result["steps"]["count"] == 50
    assert advice == []


BY_HAND = """
from profiler import profile, step
model, batch, losses = Model(), torch.ones(4, 8), []
with profile(out="run", report=False, windows=False):
    for _ in range(12):
        loss = model(batch).square().mean()
        loss.backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.01 * parameter.grad
                parameter.grad = None
        losses.append(loss.item())
        step()
tell("by hand", steps=12, losses=losses)
"""


def test_manual_update_with_marked_steps_is_recorded(loop, tmp_path, start_plain, parts):
    """The program marks the ends of its steps itself; there is no optimizer at all."""
    ran = start_plain(loop(BY_HAND), env={"PYTHONPATH": str(ROOT)}, folder=tmp_path / "run").finish()

    (part,) = parts(ran).values()
    for step in part.steps:
        assert step.forward >= SLEEP
        assert step.backward > 0
        assert step.optimizer == 0
        assert step.micro_steps == 1
    assert [step.tags for step in part.steps[1:]] == [0] * 11
    assert not ran.facts("optimizer")
    assert not ran.problems["steps"]
    assert part.done.losses == pytest.approx(sorted(part.done.losses, reverse=True))
