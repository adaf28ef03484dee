"""The program ends."""

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace

import pytest
from programs import TRAINS, codes


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """Return what a plain run of train() prints."""
    path = tmp_path_factory.mktemp("plain") / "train.py"
    path.write_text(f"{TRAINS}\ntrain()")
    return subprocess.run([sys.executable, path], capture_output=True, check=True).stdout


@pytest.mark.parametrize(
    ("ending", "ended", "status", "sentence"),
    [
        pytest.param(
            "sys.exit(3)",
            "failed",
            3,
            "The program ended with exit status 3.",
            marks=pytest.mark.fault(
                "It ends with an exit status (`sys.exit(3)`)",
                "unchanged",
                "everything",
                "`failed`; *The program ended with exit status 3.*",
            ),
        ),
        pytest.param(
            "raise ValueError('token=hunter2')",
            "failed",
            1,
            "The program ended with an uncaught error: ValueError.",
            marks=pytest.mark.fault(
                "An uncaught exception",
                "unchanged, the traceback too",
                "everything; the exception's class, but not its message, which may hold secrets",
                "`failed`; *The program ended with an uncaught error: ValueError.*",
            ),
        ),
        pytest.param(
            "raise torch.cuda.OutOfMemoryError('CUDA out of memory. Tried to allocate 2.00 GiB.')",
            "failed",
            1,
            "The program ran out of GPU memory, with an uncaught torch.OutOfMemoryError: a step needed more",
            marks=pytest.mark.fault(
                "CUDA out of memory, uncaught",
                "unchanged",
                "everything up to the failed step, and the allocator's message",
                "`failed`; *The program ran out of GPU memory ... A smaller batch ...*, with the allocator's sentence",
            ),
        ),
        pytest.param(
            "torch.empty(1 << 60, dtype=torch.uint8)",
            "failed",
            1,
            "The program ran out of memory, with an uncaught RuntimeError",
            marks=pytest.mark.fault(
                "Out of host memory, uncaught",
                "unchanged",
                "everything up to the failed step",
                "`failed`; *The program ran out of memory ...*, with the allocator's sentence",
            ),
        ),
        pytest.param(
            "os._exit(5)",
            "failed",
            5,
            "The program ended with exit status 5.",
            marks=pytest.mark.fault(
                "It calls `os._exit(5)`",
                "unchanged",
                "all but the current step and at most 20 ms before it",
                "`failed`; *The program ended with exit status 5.*",
            ),
        ),
        pytest.param(
            "ctypes.string_at(0)",
            "killed",
            -signal.SIGSEGV,
            "killed by signal 11 (SIGSEGV): native code accessed invalid memory",
            marks=pytest.mark.fault(
                "A segmentation fault",
                "unchanged: killed by signal 11, one core dump",
                "all but the current step and at most 20 ms before it",
                "`killed`; *... signal 11 (SIGSEGV): native code accessed invalid memory; ...*",
            ),
        ),
        pytest.param(
            "os.abort()",
            "killed",
            -signal.SIGABRT,
            "killed by signal 6 (SIGABRT): native code aborted",
            marks=pytest.mark.fault(
                "Native code calls `abort()`",
                "unchanged: killed by signal 6",
                "all but the current step and at most 20 ms before it",
                "`killed`; *... signal 6 (SIGABRT): native code aborted; its last output says why.*",
            ),
        ),
    ],
    ids=["exit", "exception", "gpu memory", "memory", "os._exit", "segfault", "abort"],
)
def test_program_ends_unchanged_and_its_ending_is_reported(
    training, run_both, run_profiled, said, check_report, ending, ended, status, sentence
):
    program = training(f"train()\n{ending}")
    if status == 1:
        plain, profiled = run_both(program)
        assert plain.err.startswith(b"Traceback")
        assert (profiled.out, profiled.err) == (plain.out, plain.err)
    else:
        profiled = run_profiled(program)
        assert (profiled.out, profiled.err) == (said, b"")

    assert profiled.status == status
    assert check_report(profiled, sentence, shown=["end"])["ended"] == ended
    assert len(profiled.steps) == 12
    assert b"hunter2" not in b"".join(path.read_bytes() for path in profiled.folder.iterdir() if path.is_file())


# Trains until it is asked to stop.
WAITS = """
def at_a_time_limit(number, frame):
    print("saved", flush=True)
    sys.exit(7)
if "handles" in sys.argv: signal.signal(signal.SIGTERM, at_a_time_limit)
train()
print(f"pid {os.getpid()}", flush=True)
try:
    while True: signal.pause()
except KeyboardInterrupt:
    print("interrupted", flush=True)
    raise
"""


@pytest.mark.parametrize(
    ("how", "number", "ended", "sentence"),
    [
        pytest.param(
            "Ctrl-C",
            signal.SIGINT,
            "killed",
            "killed by signal 2 (SIGINT): interrupted, for example by Ctrl-C.",
            marks=pytest.mark.fault(
                "Ctrl-C in its terminal",
                "unchanged: it gets one `KeyboardInterrupt`",
                "everything",
                "`killed`; *... signal 2 (SIGINT): interrupted, for example by Ctrl-C.*",
            ),
        ),
        pytest.param(
            "program",
            signal.SIGINT,
            "killed",
            "killed by signal 2 (SIGINT): interrupted, for example by Ctrl-C.",
            marks=pytest.mark.fault(
                "SIGINT to the program alone",
                "unchanged",
                "everything",
                "`killed`; *... signal 2 (SIGINT): interrupted, for example by Ctrl-C.*",
            ),
        ),
        pytest.param(
            "us",
            signal.SIGTERM,
            "killed",
            "killed by signal 15 (SIGTERM): a scheduler's time limit or preemption",
            marks=pytest.mark.fault(
                "SIGTERM to profile-train, as schedulers send it",
                "unchanged: it gets the signal",
                "all but the current step and at most 20 ms before it",
                "`killed`; *... signal 15 (SIGTERM): a scheduler's time limit or preemption, or a kill command.*",
            ),
        ),
        pytest.param(
            "handles",
            signal.SIGTERM,
            "failed",
            "The program ended with exit status 7, after signal 15 (SIGTERM): a scheduler's time limit or preemption",
            marks=pytest.mark.fault(
                "SIGTERM, and the program has a handler that saves and exits",
                "unchanged: its handler runs once",
                "everything",
                "`failed`; *The program ended with exit status 7, after signal 15 (SIGTERM): ...*",
            ),
        ),
        pytest.param(
            "us",
            signal.SIGHUP,
            "killed",
            "killed by signal 1 (SIGHUP): its terminal or connection was closed",
            marks=pytest.mark.fault(
                "SIGHUP: the connection is lost",
                "unchanged",
                "all but the current step and at most 20 ms before it",
                "`killed`; *... signal 1 (SIGHUP): its terminal or connection was closed, ...*",
            ),
        ),
        pytest.param(
            "program",
            signal.SIGKILL,
            "killed",
            "killed by signal 9 (SIGKILL): out of memory (the machine's or the job's limit), preemption",
            marks=pytest.mark.fault(
                "SIGKILL of the program, as the kernel sends it when memory runs out",
                "unchanged: profile-train ends by the same signal",
                "all but the current step and at most 20 ms before it",
                "`killed`; *... signal 9 (SIGKILL): out of memory (...), preemption, or kill -9.*",
            ),
        ),
    ],
    ids=lambda value: getattr(value, "name", value) if not str(value).count(" ") else "",
)
def test_ending_by_a_signal_is_reported(training, start_profiled, said, check_report, how, number, ended, sentence):
    words = training(WAITS), *(["handles"] if how == "handles" else [])
    running = start_profiled(*words, terminal=how == "Ctrl-C")
    program = int(running.wait_for("pid ").split()[-1])
    if how == "Ctrl-C":
        os.write(running.terminal, b"\x03")
    else:
        os.kill(program if how == "program" else running.pid, number)
    ran = running.finish()

    more = {signal.SIGINT: b"interrupted\n", signal.SIGTERM: b"saved\n" if how == "handles" else b""}
    assert ran.status == (7 if how == "handles" else -number)
    assert ran.out == said + f"pid {program}\n".encode() + more.get(number, b"")
    assert ran.err.count(b"Traceback") == ran.err.count(b"KeyboardInterrupt") == (number == signal.SIGINT)
    assert b"profile" not in ran.err
    assert check_report(ran, sentence)["ended"] == ended
    assert len(ran.steps) == 12
    assert ran.run.signal == (None if how == "handles" else number)


SENDS = '''
"""A rule that a scheduler's signal comes in the middle of.

Wrong when: never.
"""
import os, signal
from advisor.rules.base import Confidence, Rule, Source, Area

def when(m):
    """If the report is being made,"""
    os.kill(os.getpid(), signal.SIGTERM)

def then(m, found):
    """then nothing is to be done."""

RULE = Rule(title="None", area=Area.COST, confidence=Confidence.HEURISTIC, difficulty=1,
            sources=(Source("None"),))
'''


@pytest.mark.fault(
    "SIGTERM while the report is written, as `srun --kill-on-bad-exit` sends it to all tasks after one failed",
    "has ended: profile-train returns its status",
    "everything",
    "the report, if it is finished before SIGKILL",
)
def test_report_is_finished_despite_sigterm_from_scheduler(training, script, start_profiled):
    rules = script(SENDS, "sent.py")
    ran = start_profiled(training("train(); sys.exit(3)"), options=("--no-windows", "--rules", rules)).finish()

    assert ran.status == 3, ran.err.decode()
    result = json.loads((ran.folder / "result.json").read_text())
    assert [verdict["outcome"] for verdict in result["verdicts"] if verdict["rule"] == "sent"] == ["passed"]
    assert b"report.html" in ran.err + ran.out


LOADS = """
import threading
from torch.utils.data import DataLoader
class Slow:
    def __len__(self): return 1000
    def __getitem__(self, index): return torch.full((4,), float(index % 7))
def batches():
    iterator = iter(DataLoader(Slow(), 2, num_workers=1))
    for step in range(500):
        batch = next(iterator)
        if step == 12:
            pid = iterator._workers[0].pid
            handler = signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # else torch raises in any of these lines
            os.kill(pid, signal.SIGKILL)
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
            signal.signal(signal.SIGCHLD, handler)
            signal.pthread_kill(threading.get_ident(), signal.SIGCHLD)
        model(batch).sum().backward()
        optimizer.step()
if __name__ == "__main__": batches()
"""


@pytest.mark.fault(
    "SIGKILL of a DataLoader worker",
    "unchanged: the same `RuntimeError` from the same lines",
    "everything, including the worker's batches",
    "`failed`; *The program ended because a worker died, often because memory ran out: DataLoader worker "
    "(pid ...) ...*",
)
def test_killed_loader_worker_is_reported(training, run_both, check_report):
    ran = run_both(training(LOADS))
    plain, profiled = (replace(one, err=re.sub(rb"\(pid(\(s\))? \d+\)", b"(pid)", one.err)) for one in ran)

    assert b"DataLoader worker (pid)" in plain.err
    assert (profiled.status, profiled.out, profiled.err) == (plain.status, plain.out, plain.err)
    assert check_report(profiled, shown=["end"])["ended"] == "failed"
    assert codes(profiled, "end") == ["worker"]
    assert len(profiled.steps) == 12
    assert len(profiled.tables.batches) >= 12


CAUGHT = """
size = 8
for step in range(12):
    try:
        x = torch.randn(size, 4)
        if step == 5 and size == 8:
            model(x)
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
    except torch.OutOfMemoryError:
        size //= 2
        x = torch.randn(size, 4)
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(size, loss.item())
"""


@pytest.mark.fault(
    "CUDA out of memory, caught, and the batch halved",
    "unchanged",
    "every step; the step of the error holds both attempts",
    "`completed`",
)
def test_step_with_caught_out_of_memory_error_is_an_ordinary_step(training, run_both, check_report):
    plain, profiled = run_both(training(CAUGHT))

    assert plain.status == 0
    assert (profiled.status, profiled.out, profiled.err) == (plain.status, plain.out, plain.err)
    assert check_report(profiled)["ended"] == "completed"
    assert not profiled.problems["end"]
    assert len(profiled.steps) == 12
