"""The recorder is stopped, or its output has no reader."""

import os
import re
import signal
import time
from dataclasses import replace

import pytest
from programs import COMMAND, TORCH, codes, wait_until

HELD_UP = """
train()
print("pid", os.getpid(), flush=True)
while not os.path.exists(sys.argv[1]): time.sleep(0.01)
train(15_000, 0)
"""


@pytest.mark.fault(
    "The program is stopped and continued (SIGSTOP and SIGCONT, Ctrl-Z and `fg`)",
    "unchanged",
    "everything",
    "*The program was stopped for 2 s (for example by SIGSTOP or Ctrl-Z). Steps in that time are longer by that "
    "amount.*",
)
@pytest.mark.fault(
    "The recorder is stopped until the program's ring overflows",
    "unchanged: it never waits for the recorder",
    "all events before, and the newest events in the ring; each lost event is counted",
    "*The recorder did not run for 4 s: samples of that time are missing*; *12,345 of 45,678 events were lost ...*",
)
def test_stopped_process_continues_and_gap_is_reported(training, run_plain, start_profiled, check_report, tmp_path):
    words = training(HELD_UP), tmp_path / "go"
    running = start_profiled(*words)
    program = int(running.wait_for("\n").split()[-1])
    os.kill(program, signal.SIGSTOP)
    time.sleep(1.5)
    os.kill(program, signal.SIGCONT)
    time.sleep(0.5)
    os.kill(running.pid, signal.SIGSTOP)
    begun = time.monotonic()
    (tmp_path / "go").touch()
    wait_until(lambda: "\n15000 " in running.out, "the end of training")
    wait_until(lambda: time.monotonic() - begun > 3.0, "a while")
    os.kill(running.pid, signal.SIGCONT)
    ran = running.finish()
    plain = run_plain(*words)

    assert plain.status == ran.status == 0
    assert [line for line in plain.out.splitlines() if b"pid" not in line] == [
        line for line in ran.out.splitlines() if b"pid" not in line
    ]
    assert ran.err.decode() == ""
    lost = ran.ranks[0].events_lost
    assert lost > 0
    stopped, silent = ran.problems["program"][0], ran.problems["recorder"][0]
    assert re.search(r"\b[12] s\b", stopped)
    assert re.search(r"\b\d+ s\b", silent)
    result = check_report(ran, f"{lost:,} of {ran.ranks[0].events + lost:,}", shown=["program", "recorder"])
    assert result["ended"] == "completed"
    steps = ran.steps
    assert len(steps) > 12
    assert max(step.duration for step in steps[:13]) > 1.0  # the step in which it was stopped


@pytest.mark.fault(
    "A second run starts in the folder of a run that is still active",
    "both unchanged",
    "both: the second goes to a folder next to the first",
    "*... is being recorded into by another run; this run is kept in ...*",
)
def test_second_run_in_an_active_folder_is_recorded_next_to_it(training, start_profiled, check_report, tmp_path):
    program = training("train(); print(flush=True)\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.01)")
    running = []
    for steps in ("first", "second"):
        running.append(start_profiled(program, tmp_path / "end", out=tmp_path / "run"))
        wait_until(lambda: running[-1].out.endswith("\n\n"), f"{steps} training")
    (tmp_path / "end").touch()
    first, second = (each.finish() for each in running)

    assert (first.status, first.out, first.err) == (0, second.out, b"")
    message = " ".join(second.err.decode().split())
    assert message.startswith("profile-train: ")
    (beside,) = [path for path in tmp_path.glob("run-*") if path.is_dir()]
    assert str(beside) in message
    for ran in (first, replace(second, folder=beside)):
        assert check_report(ran)["ended"] == "completed"
        assert len(ran.steps) == 12


STREAMS = (
    TORCH
    + """
import os, sys, torch
there = []
for number in (0, 1, 2):
    try: there.append(os.fstat(number).st_rdev)
    except OSError: there.append(None)
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(12):
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
with open(sys.argv[1], "a") as file: print(there, sys.stdin, sys.stdout, file=file)
print(step)
sys.exit(4)
"""
)


@pytest.mark.fault(
    "It is started without stdin, stdout and stderr (`<&- >&- 2>&-`)",
    "unchanged: it has none either",
    "everything",
    "report.html and report.md, `failed`; there is no terminal",
)
def test_program_without_standard_streams_is_recorded(script, start, start_profiled, check_report, tmp_path):
    program = script(STREAMS)
    shell = "sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh"
    plain = start(*shell, "python", program, tmp_path / "plain")
    folder = tmp_path / "run"
    profiled = start(*shell, *COMMAND, "--no-windows", "--out", folder, program, tmp_path / "profiled", folder=folder)
    plain, profiled = plain.finish(), profiled.finish()

    assert plain.status == profiled.status == 4
    assert (tmp_path / "plain").read_text() == (tmp_path / "profiled").read_text() == f"{[None] * 3} {None} {None}\n"
    assert (folder / "report.html").exists()
    assert check_report(profiled, shown=["end"])["ended"] == "failed"
    assert (codes(profiled, "end"), profiled.run.exit_status) == (["exit-status"], 4)
    assert len(profiled.steps) == 12


TALKS = (
    TORCH
    + """
import torch
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(10_000):
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    print(step, "x" * 1000, flush=True)
"""
)


@pytest.mark.fault(
    "The reader of its output exits (`profile-train train.py 2>&1 | head -1`)",
    "unchanged: its own `BrokenPipeError` ends it, and profile-train returns its status",
    "everything",
    "report.html and report.md, `failed`; nobody reads the terminal",
)
def test_closed_output_pipe_ends_the_program_unchanged(script, start, check_report, tmp_path):
    program = script(TALKS)
    shell = "sh", "-c", '{ "$@" 2>&1; echo $? >&3; } | head -1', "sh"
    ran = []
    folder = tmp_path / "run"
    for name, words in (
        ("plain", ("python", program)),
        ("profiled", (*COMMAND, "--no-windows", "--out", folder, program)),
    ):
        status = tmp_path / name
        outer = "sh", "-c", f'exec 3>{status}; exec "$@"', "sh"
        ran.append(start(*outer, *shell, *words, folder=folder))
    plain, profiled = (each.finish() for each in ran)

    assert (profiled.status, profiled.out, profiled.err) == (plain.status, plain.out, plain.err)
    assert plain.out == b"0 " + b"x" * 1000 + b"\n"
    assert (tmp_path / "plain").read_text() == (tmp_path / "profiled").read_text() == "1\n"
    assert (folder / "report.html").exists()
    assert check_report(profiled, shown=["end"])["ended"] == "failed"
    assert codes(profiled, "end") == ["BrokenPipeError"]
    assert 0 < len(profiled.steps) < 10_000
