"""What a process of a trial told, and whether it is worth asking again."""

from __future__ import annotations

from dataclasses import replace

import pytest
from profiles import RUN

from advisor.verify.arm import TrialFailed, read
from profiler.schema import TAG_EPOCH_START, Fact, Process, Step
from profiler.store import Writer


@pytest.fixture
def process(tmp_path):
    """Recorded: a process that took so many steps, ended so, by this exception, and said this last."""

    def write(steps, outcome, last, error=None):
        writer = Writer(tmp_path / "run", "h")
        writer.put(replace(RUN, outcome=outcome))
        writer.put(Process(pid=1, started=0.5))
        writer.append([Step(pid=1, index=i, start=1 + i / 10, duration=0.1, forward=0.1) for i in range(steps)])
        if steps:
            writer.put(Fact(pid=1, time=1.0, kind="trial", body={"id": 0, "steps": steps, "losses": []}))
        if error:
            writer.put(Fact(pid=1, time=1.0, kind="error", body={"id": 0, **error}))
        writer.close()
        (tmp_path / "run.log").write_text(f"step 1\n{last}\n")
        return tmp_path / "run", tmp_path / "run.log"

    (tmp_path / "run").mkdir()
    return write


@pytest.mark.parametrize(
    ("steps", "outcome", "last", "by_chance"),
    [
        (0, "failed", "RuntimeError: address already in use", True),
        (8, "killed", "step 8", True),
        (8, "completed", "done", False),
    ],
)
def test_what_would_come_again_is_no_chance(process, steps, outcome, last, by_chance):
    with pytest.raises(TrialFailed, match=last.split("(")[0]) as caught:
        read(*process(steps, outcome, last))
    assert caught.value.by_chance is by_chance


@pytest.mark.parametrize(
    "error",
    [
        {"type": "torch.OutOfMemoryError"},
        {"type": "MemoryError"},
        {
            "type": "RuntimeError",
            "message": "[enforce fail at alloc_cpu.cpp] can't allocate memory",
        },
    ],
)
@pytest.mark.parametrize(("steps", "when"), [(0, "in its first step"), (8, "after 8 steps"), (80, "after 80 steps")])
def test_want_of_memory_is_a_result(process, error, steps, when):
    """Whatever the program said last: a launcher says that a child has failed."""
    with pytest.raises(TrialFailed, match=f"It ran out of memory {when}") as caught:
        read(*process(steps, "failed", "torch.distributed.elastic: rank 0 failed", error))
    assert not caught.value.by_chance


@pytest.mark.parametrize(("starts", "period"), [((), 1), ((20,), 1), ((20, 40), 20), ((20, 40, 61), 20)])
def test_how_often_an_epoch_begins_is_told(tmp_path, starts, period):
    """Median gap, after the warm-up."""
    (tmp_path / "run").mkdir()
    writer = Writer(tmp_path / "run", "h")
    writer.put(RUN)
    writer.put(Process(pid=1, started=0.5))
    writer.append(
        [
            Step(
                pid=1,
                index=i,
                start=1 + i / 10,
                duration=0.1,
                forward=0.1,
                tags=TAG_EPOCH_START if i in starts else 0,
                epoch_start=0.5 if i in starts else None,
            )
            for i in range(80)
        ]
    )
    writer.put(Fact(pid=1, time=1.0, kind="trial", body={"id": 0, "steps": 80, "losses": []}))
    writer.close()

    assert read(tmp_path / "run", tmp_path / "run.log").period == period


def test_a_process_that_left_no_recording_is_worth_another(tmp_path):
    (tmp_path / "run").mkdir()
    with pytest.raises(TrialFailed, match="before it was recorded") as caught:
        read(tmp_path / "run", tmp_path / "run.log")
    assert caught.value.by_chance
