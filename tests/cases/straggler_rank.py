from dataclasses import replace

from gpu_runs import gpu_metrics
from harness import DoesNotFire, Fires, NotMeasured
from stack_places import NORMALIZE

from advisor.metrics.base import Missing
from advisor.metrics.communication import OwnWork, common_step_count, own_work, straggler_persistence, straggler_skew
from advisor.metrics.settings import world_size
from advisor.metrics.stragglers import Cause, straggler_place, unequal_conditions
from advisor.models.state import State


def works(
    *seconds: float,
    phase: str = "other",
    steps: int = 100,
    skew: object = None,
    share: float = 1.0,
    given=(),
    line=None,
):
    """Return metrics of ranks that work `seconds` per step: 30 ms forward, 20 ms backward, the rest in `phase`."""
    ranks = tuple(
        OwnWork(number, (each,), each, {"data_wait": 0.0, "forward": 0.03, "other": 0.0, phase: each - 0.05})
        for number, each in enumerate(seconds)
    )
    measured = max(seconds) / sorted(seconds)[(len(seconds) - 1) // 2] - 1 if skew is None else skew
    return gpu_metrics(
        {
            world_size: len(seconds),
            own_work: ranks,
            common_step_count: steps,
            straggler_skew: measured,
            straggler_persistence: share,
            unequal_conditions: given,
            straggler_place: line or Missing("no stacks", "record them"),
        }
    )


WAITS = State(phases={"forward": 0.03, "backward": 0.08, "other": 0.01})

CASES = [
    Fires(
        "rank 1 sleeps 60 ms per step: rank 0 waits in its backward pass",
        works(0.06, 0.12),
        then="no measurement shows the cause on rank 1",
        code="host of rank 1",
        note="rank 1 120 ms, rank 0 60 ms; most of the difference is in work outside all phases. "
        "Waiting for rank 1, in each step: rank 0 60 ms",
        state=WAITS,
        removed=(0.25, 0.40, 0.50),
    ),
    Fires(
        "a line of the slow rank sleeps",
        works(0.06, 0.12, line=replace(NORMALIZE, kind="sleep")),
        then="66% of its step is normalize() in train.py:41, where time.sleep() waits",
        code="Take the sleep out",
    ),
    Fires(
        "the slow rank's batches are larger, so all of its lines take longer",
        works(0.06, 0.12, given=(Cause("batches", "rank 1 has 64 samples per batch, rank 0 16"),), line=NORMALIZE),
        then="Give every rank the same number of samples",
    ),
    Fires("twice as slow in each of ten steps", works(0.06, 0.12, steps=10)),
    NotMeasured("twice as slow in each of nine steps", works(0.06, 0.12, steps=9)),
    NotMeasured("twice as slow in nine of ten steps", works(0.06, 0.12, steps=10, share=0.9)),
    NotMeasured("a third slower in each of 29 steps", works(0.06, 0.08, steps=29)),
    Fires(
        "communication is a separate phase",
        works(0.06, 0.12),
        state=State(phases={"forward": 0.03, "backward": 0.02, "communication": 0.06, "other": 0.01}),
        removed=(0.25, 0.40, 0.50),
    ),
    Fires(
        "rank 0 itself is slow, outside the model",
        works(0.12, 0.06),
        then="logging",
        state=State(phases={"forward": 0.03, "backward": 0.02, "other": 0.07}),
        removed=(0.25, 0.40, 0.50),
    ),
    Fires(
        "rank 0 itself waits for its data",
        works(0.12, 0.06, phase="data_wait"),
        then="rank 0 waits for its DataLoader for 70 ms per step, rank 1 for 10 ms. Check its DataLoader",
        state=State(phases={"forward": 0.03, "backward": 0.02}, load=0.07),
        removed=(0.25, 0.40, 0.50),
    ),
    Fires(
        "one slow rank of four; the primary rank is slower than the median",
        works(0.07, 0.06, 0.065, 0.12),
        then="Rank 3",
        note="rank 3 120 ms, rank 2 65 ms; most of the difference is in work outside all phases. "
        "Waiting for rank 3, in each step: rank 1 60 ms, "
        "rank 2 55 ms, rank 0 50 ms",
        state=WAITS,
        removed=((0.055 - 0.005) * 0.5 / 0.12, (0.055 - 0.005) * 0.8 / 0.12, (0.055 - 0.005) / 0.12),
    ),
    Fires(
        "the slow rank's batches are larger",
        works(0.06, 0.12, phase="forward", given=(Cause("batches", "rank 1 has 64 samples per batch, rank 0 16"),)),
        then="rank 1 has 64 samples per batch, rank 0 16. Give every rank the same number of samples",
    ),
    *(
        Fires(f"the difference is {phase}", works(0.06, 0.12, phase=phase), then=cure)
        for phase, cure in (
            ("gc", "kept alive"),
            ("checkpoint_save", "save their part"),
            ("evaluation", "Distribute the evaluation"),
            ("h2d", "pins memory"),
        )
    ),
    Fires("just above the limit", works(0.1, 0.1081)),
    DoesNotFire("just below the limit", works(0.1, 0.1079)),
    Fires("twice as slow in each of thirty steps", works(0.1, 0.2, steps=30)),
    NotMeasured("40 % slower, but too few steps", works(0.1, 0.14, steps=29)),
    DoesNotFire("all ranks but one are slow: the slowest is not slower than the median", works(0.1, 0.2, 0.2, 0.2)),
    DoesNotFire("the slowest rank changes from step to step", works(0.1, 0.12, share=0.63)),
    Fires("the same rank is slowest in most steps", works(0.1, 0.12, share=0.81)),
    DoesNotFire("one process", gpu_metrics()),
    NotMeasured("only one of the ranks was recorded", works(0.1, 0.2, skew=Missing("No", "Yes."))),
]
