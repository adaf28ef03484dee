"""The context manager records one block of a program, and leaves the program as it was."""

import json
import os
import signal
import sys
from types import SimpleNamespace

import pytest
from programs import ROOT, TORCH, Ran, alive, codes, wait_until

from profiler.errors import ProfilerError
from profiler.recorder import folder as run_folder
from profiler.recorder.record import new_run
from profiler.session import profile
from profiler.store import Writer

BEGIN = """
import sys, time
import torch
from torch.utils.data import DataLoader
from profiler import profile, region, step
torch.set_num_threads(1)

def train(steps=12, pause=0, workers=0, **how):
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = [torch.full((4,), float(i)) for i in range(steps)]
    for batch in DataLoader(data, None, num_workers=workers, **how):
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(pause)
    return model, loss.item()
"""


@pytest.fixture
def begin(tmp_path, start):
    """Return a function that starts Python on BEGIN and the given parts; the recordings go into the folder `run`."""

    def begin(*parts, command=None, env=None):
        path = tmp_path / "train.py"
        path.write_text("".join((TORCH, BEGIN, *parts)))
        words = command or (sys.executable,)
        return start(*words, path, folder=tmp_path / "run", env={"PYTHONPATH": str(ROOT)} | (env or {}))

    return begin


@pytest.fixture
def run(begin):
    return lambda *parts, **how: begin(*parts, **how).finish()


def test_profile_block_ends_with_its_report(run):
    ran = run(
        """
if __name__ == "__main__":
    train(3)
    with profile(out="run") as recording:
        _, loss = train()
    print(loss == train()[1], recording.folder.is_absolute(), recording.report_path.name)
"""
    )

    assert (ran.status, ran.out) == (0, b"True True report.html\n")
    assert (ran.run.outcome, ran.run.exit_status) == ("completed", 0)
    assert ran.run.command == (str(ran.folder.parent / "train.py"),)
    assert len(ran.steps) == 12
    assert {"result.json", "report.html", "report.md"} < {path.name for path in ran.folder.iterdir()}
    result = json.loads((ran.folder / "result.json").read_text())
    assert (result["run"]["ended"], result["steps"]["count"]) == ("completed", 12)
    assert b"report.html" in ran.err


def test_torch_may_be_imported_inside_the_block(tmp_path, start):
    program = tmp_path / "train.py"
    program.write_text(
        'from profiler import profile\nwith profile(out="run", report=False):'
        + f"\n{TORCH}{BEGIN}".replace("\n", "\n    ")
        + "train()\n"
    )
    ran = start(sys.executable, program, folder=tmp_path / "run", env={"PYTHONPATH": str(ROOT)}).finish()

    assert (ran.status, ran.err) == (0, b"")
    assert len(ran.steps) == 12
    assert not (ran.folder / "report.html").exists()


@pytest.mark.parametrize(
    ("error", "caught", "outcome"),
    [
        ("ValueError('diverged')", "ValueError", "failed"),
        ("SystemExit(0)", "SystemExit", "completed"),
    ],
)
def test_an_exception_passes_through(run, error, caught, outcome):
    ran = run(
        f"""
error = {error}
try:
    with profile(out="run", report=False):
        train()
        raise error
except {caught} as same:
    print(same is error)
"""
    )

    assert (ran.status, ran.out, ran.err) == (0, b"True\n", b"")
    assert ran.run.outcome == outcome


def test_nested_block_becomes_a_region(run):
    ran = run(
        """
with profile(out="run", report=False):
    with profile(out="other", name="inner") as inner, region("warm-up"):
        train()
    print(inner.folder, inner.report_path)
"""
    )

    assert (ran.status, ran.out, ran.err) == (0, b"None None\n", b"")
    assert len(ran.steps) == 12
    assert not (ran.folder.parent / "other").exists()
    assert {fact.body["name"] for fact in ran.tables.facts if fact.kind == "region"} == {"inner", "warm-up"}


@pytest.mark.parametrize("imported", ["before", "inside"])
def test_block_under_profile_train_becomes_a_region_of_its_run(tmp_path, start_profiled, imported):
    program = tmp_path / "train.py"
    block = 'with profile(out="other", name="inner"):\n    train()\n'
    if imported == "before":
        program.write_text(TORCH + BEGIN + block)
    else:
        inside = f"\n{TORCH}{BEGIN}train()\n".replace("\n", "\n    ")
        program.write_text('from profiler import profile\nwith profile(out="other", name="inner"):' + inside + "\n")
    ran = start_profiled(program, env={"PYTHONPATH": str(ROOT)}).finish()

    assert (ran.status, ran.err) == (0, b"")
    assert len(ran.steps) == 12
    assert not (tmp_path / "other").exists()
    assert [fact.body["name"] for fact in ran.tables.facts if fact.kind == "region"] == ["inner"]


@pytest.mark.parametrize(("ending", "outcome"), [("", "completed"), ("raise ValueError('diverged')", "failed")])
def test_a_block_that_is_left_open_ends_with_the_program(run, ending, outcome):
    """For example where a callback opened it and is never notified of an end."""
    ran = run(
        f"""
profile(out="run").__enter__()
train()
{ending}
"""
    )

    assert ran.status == (outcome == "failed")
    assert (ran.run.outcome, len(ran.steps)) == (outcome, 12)
    assert json.loads((ran.folder / "result.json").read_text())["run"]["ended"] == outcome


def test_result_is_available_during_and_after_block(run):
    ran = run(
        """
with profile(out="run") as recording:
    train(40, pause=0.01)
    time.sleep(1)
    print(recording.result()["run"]["ended"], recording.result()["steps"]["count"] > 0)
print(recording.result()["run"]["ended"], recording.result()["steps"]["count"])
"""
    )

    assert (ran.status, ran.out) == (0, b"running True\ncompleted 40\n")


def test_earlier_recording_is_reported_without_importing_libraries(run):
    """The message names its script, and says that it stays because this one fails."""
    ran = run(
        """
if __name__ == "__main__":
    before = {*sys.modules}
    with profile(out="run", report=False):
        train(2)
    try:
        with profile(out="run", report=False):
            raise RuntimeError
    except RuntimeError:
        pass
    loaded = {name.partition(".")[0] for name in {*sys.modules} - before}
    print(loaded - {*sys.stdlib_module_names} - {"profiler", "torch"})
"""
    )

    assert (ran.status, ran.out) == (0, b"set()\n")
    assert b"earlier recording of " in ran.err
    assert b"the earlier recording is kept in" in ran.err


def test_step_and_region_do_nothing_outside_a_recording(run):
    ran = run('step()\nwith region("alone"):\n    train()\nprint([name for name in sys.modules if "agent" in name])\n')

    assert (ran.status, ran.out, ran.err) == (0, b"[]\n", b"")
    assert not ran.folder.exists()


# Every function and method of torch and of the modules that the agent reaches into.
UNTOUCHED = """
import gc, logging, os, threading, types
def functions():
    found = {}
    for name, module in list(sys.modules.items()):
        if not name.split(".")[0] in ("torch", "logging", "os", "gc", "threading", "multiprocessing"): continue
        for key, value in list(vars(module).items()):
            if type(value) in (types.FunctionType, types.BuiltinFunctionType): found[name, key] = value
            if issubclass(type(value), type):
                for attribute, method in list(vars(value).items()):
                    if isinstance(method, types.FunctionType): found[name, key, attribute] = method
    return found

def state():
    from torch.optim import optimizer
    hooks = optimizer._global_optimizer_pre_hooks, optimizer._global_optimizer_post_hooks
    environment = [f"{name}={value}" for name, value in os.environ.items()]
    single = [len(each) for each in hooks] + [sys.excepthook, threading.excepthook, os.getcwd()]
    return single, gc.callbacks + sys.meta_path + sys.path + environment

train(3)
torch.autograd.profiler, torch.amp.GradScaler
before, was = functions(), state()
with profile(out="run", report=False):
    model, _ = train()
    inside = functions()
    model.eval()
after, now = functions(), state()
print(sum(inside[key] is not value for key, value in before.items() if key in inside) > 10)
print([key for key, value in before.items() if key in after and after[key] is not value])
print([new for old, new in zip(was[0], now[0]) if old != new])
print([each for each in was[1] + now[1] if (each in was[1]) != (each in now[1])])
print(model._compiled_call_impl, "_compiled_call_impl" in vars(torch.nn.Linear(1, 1)))
"""


def test_finished_block_leaves_no_hooks_behind(run):
    ran = run(UNTOUCHED)

    assert (ran.status, ran.err) == (0, b"")
    assert ran.out.decode().splitlines() == ["True", "[]", "[]", "[]", "None False"]


def test_two_blocks_are_two_recordings(run):
    ran = run(
        """
for number in (1, 2):
    with profile(out=f"run{number}" if number == 2 else "run", report=False):
        train(10 * number)
    train(5)
"""
    )

    assert (ran.status, ran.err) == (0, b"")
    assert len(ran.steps) == 10
    second = Ran(0, b"", b"", ran.folder.with_name("run2"))
    assert len(second.steps) == 20
    assert {model.name for model in second.facts("model")} == {"Linear"}
    assert second.facts("loader")[0].training


def test_workers_spawned_in_block_are_recorded(run):
    ran = run(
        """
if __name__ == "__main__":
    with profile(out="run", report=False):
        train(workers=1, multiprocessing_context="spawn")
    train(workers=1, multiprocessing_context="spawn")
"""
    )

    assert (ran.status, ran.err) == (0, b"")
    assert len(ran.steps) == 12
    assert len(ran.workers) == 1
    assert {batch.pid for batch in ran.tables.batches} == {ran.workers[0].pid}
    assert len(ran.tables.batches) == 12


@pytest.mark.fault(
    "SIGKILL of a program inside its `with profile()` block",
    "unchanged",
    "everything: the recorder, a separate process, finishes the run",
    "`killed`; *The program disappeared without an exit status: out of memory (...), preemption, or kill -9.*",
)
def test_a_program_killed_in_its_block_leaves_a_finished_run(begin, report):
    running = begin(
        """
with profile(out="run"):
    train(20, pause=0.03)
    print("ready", flush=True)
    time.sleep(60)
"""
    )
    running.wait_for("ready")
    (recorder,) = _children(running.pid)
    os.kill(running.pid, signal.SIGKILL)
    ran = running.finish()
    wait_until(lambda: not alive(recorder), "the recorder")

    assert ran.run.outcome == "killed"
    assert 19 <= len(ran.steps) <= 20
    again = report(ran.folder)
    assert again.status == 0
    assert json.loads((ran.folder / "result.json").read_text())["run"]["ended"] == "killed"
    assert codes(ran, "end") == ["killed"]
    assert ran.run.signal is None
    assert ran.problems["end"][0] in " ".join(again.err.decode().split())


def _children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(child) for child in file.read().split()]


def test_block_without_disk_space_keeps_earlier_recording(tmp_path, monkeypatch):
    out = tmp_path / "run"
    out.mkdir()
    writer = Writer(out, "host")
    writer.add(new_run(("train.py",), 0, 0.01))
    writer.close()
    (out / "rings").touch()  # a user's file, where the rings go if there is no other room
    before = {path.name: path.stat().st_ino for path in out.iterdir()}
    monkeypatch.setattr(run_folder.shutil, "disk_usage", lambda base: SimpleNamespace(free=0))

    with pytest.raises(ProfilerError, match="no room"), profile(out):
        pytest.fail("it was recorded")

    assert {path.name: path.stat().st_ino for path in out.iterdir()} == before
