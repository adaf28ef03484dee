"""Metrics of the newest steps, during training."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from programs import TORCH

from profiler.integrations import live as module
from profiler.integrations.live import Live
from profiler.session import profile

ANSWER = {
    "steps": {"count": 10, "time_s": {"mean": 0.1, "p90": 0.1}},
    "phases": {"forward": 0.6, "other": 0.4},
    "metrics": {"gpu_utilization": {"value": None}},
}


class Reader:
    """A stand-in for the reader process: a child that never answers, with a pipe that the test holds."""

    def __init__(self):
        self.process = subprocess.Popen(
            [sys.executable, "-c", "import sys; sys.stdin.read()"], bufsize=0, stdin=subprocess.PIPE
        )
        read, self.write = os.pipe()
        os.set_blocking(read, False)
        self.process.stdout = os.fdopen(read, "rb", buffering=0)

    def answer(self, **answer):
        os.write(self.write, json.dumps({"cost_s": 0.0, **answer}).encode() + b"\n")


@pytest.fixture
def reader(monkeypatch):
    reader = Reader()
    monkeypatch.setattr(module, "_reader", lambda folder: reader.process)
    yield reader
    reader.process.kill()
    reader.process.wait()
    os.close(reader.write)


@pytest.fixture
def clock(monkeypatch):
    class Clock:
        now = 0.0

        def __call__(self):
            return self.now

    clock = Clock()
    monkeypatch.setattr(module, "perf_counter", clock)
    return clock


@pytest.fixture
def live(reader, tmp_path):
    run = profile()
    run.folder = tmp_path
    with Live(run, every=10) as live:
        yield live


@pytest.mark.usefixtures("clock")
@pytest.mark.process
def test_reader_is_queried_every_n_steps_and_answers_once(live, reader):
    assert [live.newest(step) for step in range(1, 13)] == [{}] * 12
    reader.answer(**ANSWER)

    assert live.newest(13) == {
        "profile_train/live/steps": 10,
        "profile_train/live/step_time_s": 0.1,
        "profile_train/live/step_time_p90_s": 0.1,
        "profile_train/live/phase/forward": 0.6,
        "profile_train/live/phase/other": 0.4,
    }
    assert live.newest(14) == {}
    reader.answer(**ANSWER)
    assert [bool(live.newest(step)) for step in range(15, 25)] == [False] * 6 + [True] + [False] * 3


@pytest.mark.usefixtures("clock")
@pytest.mark.process
def test_resumed_training_gets_first_metrics_as_early(live, reader):
    reader.answer(**ANSWER)

    assert [bool(live.newest(step)) for step in range(5001, 5012)] == [False] * 10 + [True]


@pytest.mark.process
def test_expensive_metrics_are_read_less_often(live, reader, clock):
    """A point costs 19.5 ms: the next one comes no sooner than 1.95 s after it."""
    reader.answer(**ANSWER, cost_s=0.0195)
    steps = []
    for step in range(1, 41):
        clock.now = 0.1 * step
        if live.newest(step):
            steps.append(step)
            reader.answer(**ANSWER)

    assert steps == [11, 32]


@pytest.mark.process
def test_tracker_time_counts_toward_cost(live, reader, clock):
    def slowly(values, step):
        clock.now += 0.03

    reader.answer(**ANSWER)
    for step in range(1, 12):
        live.tell(step, slowly)
    reader.answer(**ANSWER)

    clock.now = 0.03 + 2.9
    assert not any(live.newest(step) for step in range(30, 40))
    clock.now = 0.03 + 3.1
    assert live.newest(41) == {}
    assert live.newest(42)


@pytest.mark.usefixtures("clock")
@pytest.mark.process
def test_answer_without_steps_gives_no_metrics(live, reader):
    reader.answer()

    assert not any(live.newest(step) for step in range(1, 15))


@pytest.mark.usefixtures("clock")
@pytest.mark.process
def test_answer_received_in_parts_is_joined(live, reader):
    line = json.dumps({"cost_s": 0.0, **ANSWER}).encode() + b"\n"
    for step in range(1, 11):
        live.newest(step)
    os.write(reader.write, line[:20])
    assert live.newest(11) == {}
    os.write(reader.write, line[20:])

    assert live.newest(12)


@pytest.mark.process
def test_a_tracker_that_fails_does_not_end_the_training(live, reader, capsys):
    reason = "no such host"

    def fails(values, step):
        raise ConnectionError(reason)

    reader.answer(**ANSWER)
    for step in range(1, 15):
        live.tell(step, fails)

    (message,) = capsys.readouterr().err.splitlines()
    assert message.endswith(f": {reason}")
    assert reader.process.poll() is not None


@pytest.mark.process
def test_reader_failure_is_reported_once(live, reader, capsys):
    os.write(reader.write, b"garbage\n")

    assert not any(live.newest(step) for step in range(1, 30))
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_reads_nothing_without_a_recording(monkeypatch):
    monkeypatch.delenv("PROFILE_TRAIN_AGENT", raising=False)
    monkeypatch.setattr(module, "_reader", None)

    for live in (Live(profile(), 1), Live(profile(), None)):
        assert not live.newest(1)
        with live:
            assert not any(live.newest(step) for step in range(1, 5))


@pytest.mark.usefixtures("clock")
@pytest.mark.process
def test_next_recording_gets_metrics_too(live, reader):
    """For example accelerate's tracker, which records from each `init_trackers` to the next `end_training`."""
    live.close()
    assert not any(live.newest(step) for step in range(1, 20))

    with live:
        reader.answer(**ANSWER)
        assert [bool(live.newest(step)) for step in range(1, 12)] == [False] * 10 + [True]


def test_step_interval_must_be_positive():
    with pytest.raises(ValueError, match="positive number of steps"):
        Live(profile(), 0)


def test_real_training_gets_live_metrics(script, start):
    """Wait until there are three, however long that takes."""
    program = script(
        f"""
        {TORCH}
        import json, time
        import torch
        from profiler import profile
        from profiler.integrations.live import Live
        torch.set_num_threads(1)
        model = torch.nn.Linear(8, 8)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        points, step = [], 0
        with profile(out="run", report=False, windows=False) as run, Live(run, every=20) as live:
            while len(points) < 3:
                model(torch.randn(4, 8)).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
                time.sleep(0.005)
                step += 1
                if values := live.newest(step):
                    points.append((step, values))
            reader = live._reader.pid
        print(json.dumps([points, step, reader]))
        """
    )
    ran = start(sys.executable, program, env={"PYTHONPATH": str(Path(__file__).parents[2])}).finish()

    assert (ran.status, ran.err) == (0, b"")
    points, last, reader = json.loads(ran.out)
    steps = [step for step, _ in points]
    assert steps == sorted(set(steps))
    assert sum(values["profile_train/live/steps"] for _, values in points) <= last
    for _, values in points:
        shares = [value for name, value in values.items() if "/phase/" in name]
        assert sum(shares) == pytest.approx(1, abs=0.02)
        assert values["profile_train/live/step_time_s"] > 0.005
    assert not Path(f"/proc/{reader}").exists()
