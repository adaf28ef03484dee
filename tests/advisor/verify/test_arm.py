"""What a process of a trial reported, and whether it is worth running again."""

from __future__ import annotations

from dataclasses import replace

import pytest
from profiles import RUN

from advisor.verify.arm import TrialFailed, read
from profiler.schema import TAG_EPOCH_START, Fact, Problem, Process, Step
from profiler.store import Writer


@pytest.fixture
def process(tmp_path):
    """Record a process with this number of steps, outcome, last line and exception."""

    def write(steps, outcome, last, error=None):
        writer = Writer(tmp_path / "run", "h")
        writer.add(replace(RUN, outcome=outcome))
        writer.add(Process(pid=1, started=0.5))
        writer.add(*[Step(pid=1, index=i, start=1 + i / 10, duration=0.1, forward=0.1) for i in range(steps)])
        if steps:
            writer.add(Fact(pid=1, time=1.0, kind="trial", body={"steps": steps, "losses": []}))
        if error:
            writer.add(Fact(pid=1, time=1.0, kind="error", body=error))
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
def test_failure_is_by_chance_unless_process_completed(process, steps, outcome, last, by_chance):
    with pytest.raises(TrialFailed, match=last.split("(")[0]) as caught:
        read(*process(steps, outcome, last))
    assert caught.value.by_chance is by_chance


TORCHRUN = """\
[rank1]:     raise AttributeError(
[rank1]: AttributeError: it has no reducer
W1122 08:00:00 torch/distributed/elastic/multiprocessing/api.py] Sending process 7 closing signal SIGTERM
Traceback (most recent call last):
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================"""
ACCELERATE = """\
ValueError: no such file
Traceback (most recent call last):
subprocess.CalledProcessError: Command '['python', 'train.py']' returned non-zero exit status 1."""


@pytest.mark.parametrize(
    ("last", "said"),
    [
        (TORCHRUN, "AttributeError: it has no reducer"),
        (ACCELERATE, "ValueError: no such file"),
        ("ValueError: caught\nbye", "bye"),
    ],
)
def test_error_of_program_is_quoted_rather_than_launcher(process, last, said):
    with pytest.raises(TrialFailed) as caught:
        read(*process(8, "failed", last))
    assert str(caught.value).endswith(f": {said}")


def test_trial_of_change_that_could_not_be_applied_fails(process, tmp_path):
    """Regardless of how many steps could be measured."""
    folder, log = process(80, "completed", "done")
    why = "No model has a 2-D convolution."
    writer = Writer(folder, "h")
    writer.add(Problem(time=1.0, source="trial", message=why))
    writer.close()

    with pytest.raises(TrialFailed) as caught:
        read(folder, log)
    assert str(caught.value).endswith(f" {why}")
    assert not caught.value.by_chance


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
def test_running_out_of_memory_is_not_by_chance(process, error, steps, when):
    """Regardless of the program's last line: a launcher reports that a child has failed."""
    with pytest.raises(TrialFailed, match=f"It ran out of memory {when}") as caught:
        read(*process(steps, "failed", "torch.distributed.elastic: rank 0 failed", error))
    assert not caught.value.by_chance


@pytest.mark.parametrize(("starts", "period"), [((), 1), ((20,), 1), ((20, 40), 20), ((20, 40, 61), 20)])
def test_period_is_median_gap_between_epoch_starts(tmp_path, starts, period):
    """The period is the median gap after the warm-up."""
    (tmp_path / "run").mkdir()
    writer = Writer(tmp_path / "run", "h")
    writer.add(RUN)
    writer.add(Process(pid=1, started=0.5))
    writer.add(
        *[
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
    writer.add(Fact(pid=1, time=1.0, kind="trial", body={"steps": 80, "losses": []}))
    writer.close()

    assert read(tmp_path / "run", tmp_path / "run.log").period == period


def test_process_without_recording_failed_by_chance(tmp_path):
    (tmp_path / "run").mkdir()
    with pytest.raises(TrialFailed, match="before it was recorded") as caught:
        read(tmp_path / "run", tmp_path / "run.log")
    assert caught.value.by_chance
