"""Programs that profile, measure, watch or log themselves: their tools report the same as without the profiler."""

import json
import sys

import pytest
from programs import TORCH, Ran

LOOP = (
    TORCH
    + """
import sys, torch
torch.set_num_threads(1)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

def step():
    loss = model(torch.ones(2, 4)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss

def train(steps):
    for _ in range(steps):
        loss = step()
    return loss.item().hex()
"""
)


def same(plain: Ran, profiled: Ran) -> None:
    assert plain.status == 0, plain.err.decode()
    assert (plain.status, plain.out, plain.err) == (profiled.status, profiled.out, profiled.err)


# ---- torch.profiler ----

PROFILED = (
    LOOP
    + """
import collections, json, os
from torch.profiler import ProfilerActivity, profile, schedule

def events(trace, cats):
    found = collections.Counter()
    for event in json.load(open(trace))["traceEvents"]:
        if event.get("ph") == "X" and event.get("cat") in cats:
            if event["cat"] != "python_function" or event["name"].startswith("nn.Module"):
                found[event["cat"] + " " + event["name"]] += 1
    return sorted(found.items())
"""
)


def test_programs_own_torch_profiler_records_the_same(script, run_both):
    """From the first step to the last, and on a schedule; our windows stay out, and the report says so."""
    program = script(
        PROFILED
        + """
with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as p:
    print(train(60))
p.export_chrome_trace(f"first-{os.getpid()}.json")
print(events(f"first-{os.getpid()}.json", ("cpu_op", "user_annotation")))
with profile(activities=[ProfilerActivity.CPU], schedule=schedule(wait=30, warmup=1, active=3, repeat=1),
             on_trace_ready=lambda p: p.export_chrome_trace(f"second-{os.getpid()}.json"), with_stack=True) as p:
    for _ in range(60):
        step(); p.step()
print(events(f"second-{os.getpid()}.json", ("cpu_op", "user_annotation", "python_function")))
"""
    )
    plain, profiled = run_both(program, options=("--budget", "0.5"))

    assert b"nn.Module: Sequential_0', 3)" in plain.out
    assert (plain.status, plain.out) == (profiled.status, profiled.out)
    assert not profiled.tables.windows
    assert len(profiled.steps) == 120
    (flags,) = profiled.facts("flags")
    assert flags.program_profiler
    assert "torch.profiler" in (profiled.folder / "report.md").read_text()


def test_programs_own_profiler_with_stacks_sees_the_same_modules(script, run_both):
    program = script(
        PROFILED
        + """
with profile(activities=[ProfilerActivity.CPU], with_stack=True) as p:
    print(train(6))
p.export_chrome_trace(f"trace-{os.getpid()}.json")
print(events(f"trace-{os.getpid()}.json", ("cpu_op", "user_annotation", "python_function")))
"""
    )
    plain, profiled = run_both(program)

    assert (plain.status, plain.out) == (profiled.status, profiled.out)


def test_kineto_logs_only_the_programs_own_profiler(script, run_plain, run_profiled):
    program = script(
        PROFILED
        + """
import time
for _ in range(int(sys.argv[1])):
    step(); time.sleep(0.005)  # long enough in all that windows fit into the budget
with profile(activities=[ProfilerActivity.CPU]):
    train(2)
"""
    )

    def lines(ran):
        assert ran.status == 0, ran.err.decode()
        return [line for line in ran.err.decode().splitlines() if "ActivityProfiler" in line]

    plain = lines(run_plain(program, 10))
    for steps in (10, 400):
        profiled = run_profiled(program, steps, options=("--no-report", "--budget", "0.5"))
        assert len(lines(profiled)) == len(plain) > 0
    assert profiled.tables.windows


# ---- Python's own ----


def test_cprofile_counts_the_programs_calls(script, run_both):
    program = script(
        LOOP
        + """
import cProfile, pstats
profile = cProfile.Profile()
profile.runcall(train, 10)
stats = pstats.Stats(profile).stats
print(sorted((name, calls[0]) for (file, line, name), calls in stats.items() if file == __file__))
"""
    )
    plain, profiled = run_both(program)

    assert b"('step', 10)" in plain.out
    same(plain, profiled)
    assert len(profiled.steps) == 10


# ---- others' ----


def test_coverage_measures_the_same_lines(script, start, start_profiled, tmp_path):
    pytest.importorskip("coverage")
    script(LOOP + "if len(sys.argv) > 9:\n    print('never')\nprint(train(5))")
    said = {}
    for name, begin in (("plain", start), ("profiled", start_profiled)):
        env = {"COVERAGE_FILE": str(tmp_path / name)}
        said[name] = begin("python", "-m", "coverage", "run", "--branch", "train.py", env=env).finish()
        lines = start("python", "-m", "coverage", "json", "-o", f"{name}.json", env=env).finish()
        assert lines.status == 0
    files = [json.loads((tmp_path / f"{name}.json").read_text())["files"] for name in said]

    same(said["plain"], said["profiled"])
    assert list(files[0]) == ["train.py"]
    assert files[0]["train.py"] == files[1]["train.py"]
    assert len(said["profiled"].steps) == 5


def test_a_debugger_listens_and_stops_nothing(script, run_both):
    pytest.importorskip("debugpy")
    program = script(
        LOOP
        + """
import debugpy
debugpy.listen(("127.0.0.1", 0))
assert not debugpy.is_client_connected()
print(train(5), sys.gettrace() is None)
"""
    )
    plain, profiled = run_both(program, env={"PYDEVD_DISABLE_FILE_VALIDATION": "1"})

    same(plain, profiled)
    assert len(profiled.steps) == 5


def test_tqdm_tensorboard_and_wandb_work_unchanged(script, run_both):
    """tqdm on the loop, a SummaryWriter, and wandb offline."""
    for name in ("tqdm", "tensorboard", "wandb"):
        pytest.importorskip(name)
    program = script(
        LOOP
        + """
import os, wandb
from torch.utils.tensorboard import SummaryWriter
from tqdm import tqdm
folder = sys.argv[1]
writer = SummaryWriter(folder)
run = wandb.init(mode="offline", dir=folder, settings=wandb.Settings(silent=True, console="off"))
for number in tqdm(range(30), bar_format="{n}/{total}"):
    loss = step().item()
    writer.add_scalar("loss", loss, number)
    run.log({"loss": loss})
run.finish()
writer.close()
print(loss.hex(), sorted(name.split(".")[0] for name in os.listdir(folder)))
"""
    )
    env = {"WANDB_SILENT": "true", "WANDB_ERROR_REPORTING": "false"}
    plain, profiled = run_both(program, "logs", env=env)

    assert plain.status == profiled.status == 0, profiled.err.decode()
    assert plain.out.splitlines()[-1].partition(b" ")[0] == profiled.out.splitlines()[-1].partition(b" ")[0]
    assert b"30/30" in profiled.err
    assert b"Traceback" not in profiled.err
    assert len(profiled.steps) == 30


def test_ipython_runs_a_script(script, start, start_profiled):
    pytest.importorskip("IPython")
    program = script(LOOP + "print(train(5), get_ipython().__class__.__name__)")
    env = {"IPYTHONDIR": str(program.parent / "ipython")}
    words = (sys.executable, "-m", "IPython", "--no-banner", "--colors=NoColor", "--HistoryManager.enabled=False")
    plain = start(*words, program, env=env).finish()
    profiled = start_profiled(*words, program, env=env).finish()

    same(plain, profiled)
    assert len(profiled.steps) == 5
