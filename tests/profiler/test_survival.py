"""A process is killed: the recording is kept, and the program is not affected."""

import errno
import json
import os
import signal
from pathlib import Path

import pytest
from programs import TORCH, alive, wait_until

# About 20 ms per step; prints its PID, and logs the monotonic time and the loss after each step.
TRAINS = (
    TORCH
    + """
import os, sys, time, torch
from torch import nn
torch.set_num_threads(1)
torch.manual_seed(0)
steps = int(sys.argv[1])
model = nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
log = open(sys.argv[2], "w", buffering=1)
print("pid", os.getpid(), flush=True)
for step in range(steps):
    loss = model(torch.randn(4, 8)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    time.sleep(0.02)
    log.write(f"{time.perf_counter()} {loss.item()}\\n")
while len(sys.argv) > 3 and not os.path.exists(sys.argv[3]): time.sleep(0.01)
print("done", flush=True)
"""
)


@pytest.fixture
def trains(script, tmp_path):
    """Return a function that gives the command to train `steps` steps, and the log file."""

    def make(steps):
        log = tmp_path / f"log-{steps}"
        log.touch()
        return (script(TRAINS), str(steps), str(log)), log

    return make


def logged(log):
    return [line.split() for line in log.read_text().splitlines()]


def program_of(running):
    return int(running.wait_for("\n").split()[1])


def result(folder):
    return json.loads((folder / "result.json").read_text())


@pytest.mark.fault(
    "SIGKILL of the program in the middle of training",
    "unchanged: profile-train ends by the same signal",
    "all but the current step and at most 20 ms before it",
    "`killed`, in all formats of the report",
)
def test_a_killed_program_is_reported_up_to_its_last_second(trains, start_profiled):
    words, log = trains(10_000)
    running = start_profiled(*words, options=("--no-windows",))
    program = program_of(running)
    wait_until(lambda: len(logged(log)) > 60, "60 steps")
    os.kill(program, signal.SIGKILL)
    ran = running.finish()

    assert ran.status == -signal.SIGKILL
    assert (ran.run.outcome, ran.run.exit_status, ran.run.signal) == ("killed", 137, 9)
    steps = logged(log)
    known = [line for line in steps if float(line[0]) < float(steps[-1][0]) - 1.0]
    assert len(known) <= len(ran.steps) <= len(steps) + 1
    assert (result(ran.folder)["run"]["ended"], result(ran.folder)["run"]["exit_status"]) == ("killed", 137)
    assert (ran.folder / "report.html").exists()
    assert not _rings(ran)


@pytest.mark.fault(
    "SIGKILL of the recorder, which is profile-train itself",
    "unchanged: it continues training",
    "`profile-train report` reads the program's ring, during training and after it: of the time after the kill, the "
    "newest 32,768 events, about 8,000 steps. Lost: the step that the recorder held (the end of a step shows only when "
    "the next one begins), and all samples from half a second before the kill",
    "*The recorder of this run ended early ...*: `running`, later `completed`",
)
def test_program_outlives_its_recorder_and_report_reads_its_rings(trains, start_plain, start_profiled, report):
    words, log = trains(150)
    end = log.with_name("end")
    plain = start_plain(*words[:2], f"{log}-plain", end)
    running = start_profiled(*words, end)
    program = program_of(running)
    wait_until(lambda: len(logged(log)) > 30, "30 steps")
    os.kill(running.pid, signal.SIGKILL)
    ran = running.finish()
    assert ran.status == -signal.SIGKILL

    meanwhile = len(logged(log))
    first = report(ran.folder)
    assert first.status == 0
    assert b"still training" in first.err
    assert meanwhile - 50 <= result(ran.folder)["steps"]["count"] <= len(logged(log)) + 1
    assert result(ran.folder)["run"]["ended"] == "running"
    assert alive(program)

    end.touch()
    wait_until(lambda: not alive(program), "the end of the program")
    assert running.out.endswith("done\n")
    plain.finish()
    assert [loss for _, loss in logged(log)] == [loss for _, loss in logged(Path(f"{log}-plain"))]

    rings = _rings(ran)
    second = report(ran.folder)
    assert second.status == 0
    assert b"the program's rings" in second.err
    assert result(ran.folder)["run"]["ended"] == "completed"
    steps = ran.tables.steps
    assert 148 <= len(steps) <= 150
    assert [step.index for step in steps] == sorted({step.index for step in steps})
    assert ran.ranks[0].events_lost == 0
    assert rings
    assert not _rings(ran)

    third = report(ran.folder)
    assert third.status == 0
    assert b"recorder" not in third.err


def _rings(ran):
    """Return the remaining rings of this run's processes."""
    pids = [process.pid for process in ran.tables.processes]
    return [ring for pid in pids for ring in Path("/dev/shm").glob(f"profile-train-*/{pid}-*")]


def test_program_that_calls_os_exit_is_recorded_to_its_last_step(script, run_profiled):
    ran = run_profiled(
        script(
            """
            import os, time, torch
            model = torch.nn.Linear(2, 2)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for _ in range(10):
                model(torch.ones(1, 2)).sum().backward()
                optimizer.step()
            time.sleep(0.03)
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()
            os._exit(5)
            """
        )
    )

    assert (ran.status, ran.run.outcome, ran.run.exit_status) == (5, "failed", 5)
    assert len(ran.steps) == 11


STRANGE = (
    TORCH
    + """
import torch
from torch import nn
from torch.utils.data import DataLoader
torch.set_num_threads(1)
torch.manual_seed(0)

class Collate:
    def __call__(self, samples): return torch.stack(samples)
    def __getattr__(self, name): raise RuntimeError(f"{name} is private")

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.unused = nn.LazyLinear(2)
    def forward(self, x): return self.layer(x)
    def parameters(self, which): return self.layer.parameters()
    def modules(self): raise RuntimeError("modules are private")

model = Model()
optimizer = torch.optim.SGD(model.parameters("all"), lr=0.1)
optimizer.state[model.layer.weight]["strange"] = Collate()
loader = DataLoader([torch.full((4,), i / 40) for i in range(40)], 4, collate_fn=Collate())
for batch in loader:
    loss = model(batch).square().sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item())
"""
)


@pytest.mark.fault(
    "A model, an optimizer and a loader that raise when their methods are called",
    "unchanged",
    "every step; none of their methods is called",
    "nothing; what only their methods could return is *not measured*",
)
def test_user_objects_whose_methods_raise_are_not_called(tmp_path, run_both):
    program = tmp_path / "train.py"
    program.write_text(STRANGE)
    plain, profiled = run_both(program)

    assert (plain.status, plain.out, plain.err) == (profiled.status, profiled.out, profiled.err)
    assert plain.out.count(b"\n") == 10
    assert not profiled.problems.keys() - {"nvml"}
    assert len(profiled.steps) == 10
    for step in profiled.steps:
        assert step.data_wait > 0
        assert step.forward > 0
        assert step.backward > 0


def test_file_size_limit_is_reported_and_program_unharmed(script, run_both):
    plain, profiled = run_both(
        script(
            f"""
            {TORCH}
            import os, resource
            resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
            import torch
            model = torch.nn.Linear(2, 2)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for _ in range(5):
                model(torch.ones(1, 2)).sum().backward()
                optimizer.step()
            print(model.weight.sum().item() < 0)
            """
        )
    )

    assert (plain.status, plain.out, plain.err) == (profiled.status, profiled.out, profiled.err)
    assert profiled.status == 0
    assert not profiled.steps
    (message,) = profiled.problems["ring"]
    assert os.strerror(errno.EFBIG) in message
