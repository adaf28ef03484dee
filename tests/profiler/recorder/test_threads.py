"""The program's own Python measures other numbers of threads; its output is not trusted blindly."""

import sys
from types import SimpleNamespace

import pytest
from programs import TORCH

from profiler.agent import products
from profiler.recorder.threads import keep, measure
from profiler.schema import MatmulFact, Process, ThreadsFact
from profiler.store import decode_fact, find, read

SMALL = MatmulFact(rows=4, inputs=64, outputs=8)


class Torch:
    """A stand-in: a matmul takes 20 ms of CPU time divided by the number of threads; the program gets `share` of the
    cores."""

    def __init__(self, share=1.0):
        self.now, self.cpu, self.threads, self.share, self.turns = 0.0, 0.0, 0, share, []

    def ones(self, *size):
        return size

    def set_num_threads(self, number):
        self.threads = number
        self.turns.append(number)

    def mm(self, left, right):
        assert (left, right) == ((4, 64), (64, 8))
        self.now += 0.02 / self.threads / self.share
        self.cpu += 0.02 / self.threads


def tried(torch, monkeypatch, numbers=(1, 2, 4)):
    clocks = SimpleNamespace(perf_counter=lambda: torch.now, thread_time=lambda: torch.cpu)
    monkeypatch.setattr(products, "time", clocks)
    return products.seconds(torch, 4, 64, 8, list(numbers))


def test_median_time_is_measured_per_thread_count(monkeypatch):
    torch = Torch()

    assert tried(torch, monkeypatch) == pytest.approx({1: 0.02, 2: 0.01, 4: 0.005})
    assert torch.turns[:6] == [1, 2, 4, 1, 2, 4], "they take turns"
    assert torch.now == pytest.approx(products.LONGEST, rel=0.1)


def test_rounds_disturbed_by_other_programs_are_dropped(monkeypatch):
    torch = Torch()
    slower = torch.set_num_threads

    def every_other_round(number):
        slower(number)
        torch.share = 0.5 if torch.turns.count(1) % 2 else 1.0

    torch.set_num_threads = every_other_round

    assert tried(torch, monkeypatch) == pytest.approx({1: 0.02, 2: 0.01, 4: 0.005})


def test_no_result_if_other_programs_used_the_cores(monkeypatch):
    assert tried(Torch(share=0.8), monkeypatch) == {}
    assert tried(Torch(share=0.95), monkeypatch) != {}


def python(tmp_path, text):
    """Return a process whose Python is this program; it gets the script's path and arguments."""
    path = tmp_path / "python"
    path.write_text(f"#!{sys.executable}\n{text}\n")
    path.chmod(0o700)
    return Process(pid=1, started=0.0, executable=str(path))


@pytest.mark.process
def test_measurement_runs_in_the_programs_own_python(tmp_path):
    program = "import sys; print('{\"1\": 0.5, \"' + sys.argv[2] + sys.argv[3] + sys.argv[4] + '\": 0.25}')"

    assert measure(python(tmp_path, program), SMALL, (1, 2)) == {1: 0.5, 4648: 0.25}


@pytest.mark.parametrize(
    "text",
    ["raise SystemExit(1)", "print('[1, 2]')", "print('not JSON')", "print('{\"one\": 2}')", "print('{\"1\": null}')"],
)
@pytest.mark.process
def test_failed_measurement_gives_no_result(tmp_path, text):
    assert measure(python(tmp_path, text), SMALL, (1, 2)) == {}


@pytest.mark.process
def test_missing_or_unknown_python_gives_no_result():
    assert measure(Process(pid=1, started=0.0, executable="/nowhere/python"), SMALL, (1, 2)) == {}
    assert measure(Process(pid=1, started=0.0), SMALL, (1, 2)) == {}


def test_oversized_matmul_is_not_tried(tmp_path):
    large = MatmulFact(rows=1 << 20, inputs=1 << 10, outputs=1)

    assert measure(python(tmp_path, "print('{\"1\": 0.5}')"), large, (1, 2)) == {}


@pytest.mark.process
def test_real_matmul_is_measured():
    process = Process(pid=1, started=0.0, executable=sys.executable)
    seconds = measure(process, SMALL, (1, 2))

    assert set(seconds) in ({1, 2}, set())  # empty where other programs use the cores
    assert all(0 < each < 1 for each in seconds.values())


def test_thread_timings_are_stored_with_the_recording(script, run_profiled):
    ran = run_profiled(
        script(
            f"""
            {TORCH}
            import sys
            import torch
            from torch import nn
            model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
            for step in range(12):
                if step == 11 and len(sys.argv) > 1: torch.set_num_threads(1)
                model(torch.ones(3, 5, 8)).sum().backward()
                optimizer.step()
            """
        ),
        env={"OMP_NUM_THREADS": "1"},
    )
    (matmul,) = ran.facts("matmul")
    assert (matmul.rows, matmul.inputs, matmul.outputs) == (15, 8, 32)
    assert [flags.threads_from for flags in ran.facts("flags")] == ["environment"]
    (process,) = ran.ranks
    assert process.executable == sys.executable

    keep(ran.folder, ran.run, process, {1: 0.5, 2: 0.25})

    (path,) = find(ran.folder)
    (kept,) = [decode_fact(fact) for fact in read(path).facts if fact.kind == "threads"]
    assert kept == ThreadsFact(seconds={1: 0.5, 2: 0.25})


def test_unset_thread_count_is_recorded_as_default(script, run_profiled):
    program = f"""{TORCH}
import torch
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(12):
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
print(torch.set_num_threads.__name__)
"""
    ran = run_profiled(script(program))

    assert ran.out == b"set_num_threads\n"
    assert [flags.threads_from for flags in ran.facts("flags")] == ["default"]
