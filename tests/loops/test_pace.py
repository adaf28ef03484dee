"""Steps of microseconds and of seconds: all are counted, the recording stays small, and the report names its losses."""

import pytest

from profiler.schema import Step
from profiler.store import Writer

FAST = """
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6, foreach=False)
for parameter in model.parameters(): parameter.grad = torch.ones_like(parameter)
for _ in range(50_000): optimizer.step()
tell("fast", steps=50_000, weights=model.weight.sum().item())
"""
SLOW = """
model, optimizer = made(2.0)
losses = [update(model, optimizer, torch.ones(4, 8)) for _ in range(3)]
tell("slow", steps=3, losses=losses)
"""


def test_very_short_and_very_long_steps_are_all_counted(loop, start_plain, start_profiled, parts, judged):
    fast, slow = loop(FAST, name="fast.py"), loop(SLOW, name="slow.py")
    plain = [start_plain(program) for program in (fast, slow)]
    profiled = [start_profiled(program, options=("--no-windows",)) for program in (fast, slow)]
    plain, profiled = [ran.finish() for ran in plain], [ran.finish() for ran in profiled]

    for one, other in zip(plain, profiled, strict=True):
        assert (one.status, one.out) == (other.status, other.out)
    quick, unhurried = profiled
    (rank,) = quick.ranks
    number = sum(step.count for step in quick.steps)
    result, advice = judged(quick)
    assert result["overhead"]["events_lost"] == rank.events_lost
    assert 50_000 - rank.events_lost <= number <= 50_000
    assert result["steps"]["count"] == number
    assert len(quick.steps) <= 2 * Writer.LIMITS[Step]
    assert rank.events + rank.events_lost >= 50_000
    assert advice == []

    result, advice = judged(unhurried)
    (part,) = parts(unhurried).values()
    assert [step.forward for step in part.steps] == pytest.approx([2.0] * 3, abs=0.5)
    assert all(step.forward <= step.duration for step in part.steps)
    assert result["steps"]["count"] == 3
    assert result["phases"]["forward"] > 0.9
    assert advice == []
