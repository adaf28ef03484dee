"""The program does something unusual, or has hardly any resources."""

import errno
import os
import re

import pytest
from programs import COMMAND, codes

UNUSUAL = """
import faulthandler
def mine(kind, error, traceback):
    print("mine:", kind.__name__, flush=True)
def on_usr1(number, frame):
    print("usr1", flush=True)

os.chdir("/")
os.environ.clear()
try: os.setsid()
except PermissionError: pass  # it is the leader of its group already
sys.excepthook = mine
gc.disable()
faulthandler.enable()
reading, writing = os.pipe()
os.set_blocking(writing, False)
signal.set_wakeup_fd(writing)
signal.signal(signal.SIGUSR1, on_usr1)
train()
os.kill(os.getpid(), signal.SIGUSR1)
print(os.read(reading, 8), os.getcwd(), dict(os.environ), gc.isenabled(), sys.excepthook.__name__)
raise ValueError
"""


@pytest.mark.fault("It changes its working directory while `--out` is relative", "unchanged", "everything", "nothing")
@pytest.mark.fault(
    "It clears `os.environ`", "unchanged", "everything but processes that it starts afterwards", "nothing"
)
@pytest.mark.fault("It leaves its session (`os.setsid`)", "unchanged", "everything", "nothing")
@pytest.mark.fault(
    "It replaces `sys.excepthook` and ends with an exception",
    "unchanged: its own hook is called",
    "everything",
    "`failed`; *The program ended with exit status 1.*",
)
@pytest.mark.fault("It disables the garbage collector", "unchanged", "everything", "nothing")
@pytest.mark.fault(
    "It has its own signal handlers, `signal.set_wakeup_fd` and `faulthandler`",
    "unchanged",
    "everything",
    "nothing",
)
def test_unusual_process_state_is_preserved(training, start, start_plain, check_report, tmp_path):
    program = training(UNUSUAL)
    options = ("--no-report", "--no-windows", "--out", "runs/relative")
    plain = start_plain(program)
    profiled = start(*COMMAND, *options, program, folder=tmp_path / "runs" / "relative").finish()
    plain = plain.finish()

    assert plain.out.endswith(b"usr1\nb'\\n' / {} False mine\nmine: ValueError\n")
    assert (profiled.status, profiled.out, profiled.err) == (plain.status, plain.out, plain.err)
    assert check_report(profiled, shown=["end"])["ended"] == "failed"
    assert (codes(profiled, "end"), profiled.run.exit_status) == (["exit-status"], 1)
    assert len(profiled.steps) == 12
    assert set(profiled.problems) == {"end", *(["nvml"] if "nvml" in profiled.problems else [])}


CLOSES = """
train()
os.closerange(3, 256)
with open(sys.argv[1], "w") as own:
    train(30, 0.025)
    own.write("mine\\n")
print(open(sys.argv[1]).read())
del sys.excepthook
raise ValueError
"""


@pytest.mark.fault(
    "It closes every file descriptor and opens files that get the same numbers",
    "unchanged: its files hold only what it writes",
    "everything but later changes of its settings",
    "`failed`; *The program ended with exit status 1.*",
)
@pytest.mark.fault("It removes `sys.excepthook`", "unchanged", "everything", "`failed`; *... exit status 1.*")
def test_closing_all_file_descriptors_does_not_corrupt_program_files(training, run_both, check_report, tmp_path):
    plain, profiled = run_both(training(CLOSES), tmp_path / "own")

    assert plain.out.endswith(b"\nmine\n\n")
    assert (profiled.status, profiled.out, profiled.err) == (plain.status, plain.out, plain.err)
    assert check_report(profiled, shown=["end"])["ended"] == "failed"
    assert (codes(profiled, "end"), profiled.run.exit_status) == (["exit-status"], 1)
    assert len(profiled.steps) == 42


AGAIN = """
train()
if "AGAIN" not in os.environ:
    os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | {"AGAIN": "1"})
"""


@pytest.mark.fault(
    "It replaces itself (`os.execv`), for example to restart in another environment",
    "unchanged",
    "the steps of both",
    "nothing",
)
def test_program_is_recorded_before_and_after_exec(training, run_both, check_report):
    plain, profiled = run_both(training(AGAIN))

    assert plain.out.count(b"\n") == 2
    assert (profiled.status, profiled.out, profiled.err) == (plain.status, plain.out, plain.err)
    assert check_report(profiled)["ended"] == "completed"
    assert len(profiled.steps) == 24


FORKS = """
def child(does):
    pid = os.fork()
    if pid == 0:
        try:
            does()
        finally:
            os._exit(9)
    print(does.__name__, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)

def trains(): train(6)
def trains_and_leaves(): train(7); os._exit(3)
def leaves(): os._exit(4)
def becomes_another(): os.execv(sys.executable, [sys.executable, "-c", "print('another')"])
def dies(): train(8); os.kill(os.getpid(), signal.SIGKILL)

train()
for does in trains, trains_and_leaves, leaves, becomes_another, dies: child(does)
train()
"""


@pytest.mark.fault(
    "It forks after training has begun: children train, exit, are killed, or become another program",
    "unchanged",
    "its own steps and those of each child that trains; other children cost nothing",
    "nothing: each that trains is a process of the run",
)
def test_forked_children_that_train_are_recorded(training, run_both, check_report):
    plain, profiled = run_both(training(FORKS))

    assert (plain.status, plain.out.count(b"\n")) == (0, 11)
    assert (profiled.status, profiled.out, profiled.err) == (plain.status, plain.out, plain.err)
    assert check_report(profiled)["ended"] == "completed"
    steps = [step.pid for step in profiled.steps]
    assert sorted(steps.count(process.pid) for process in profiled.tables.processes) == [6, 7, 8, 24]


LIMITED = """
train(1)  # torch imports the rest of itself

def limited(number, limit, *, handler=signal.SIG_IGN):
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGXFSZ, handler)
        if number == resource.RLIMIT_AS:  # beyond what it has
            limit += int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(number, (limit, limit))
        train()
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)

"""


@pytest.mark.fault(
    "Its file size is limited (`RLIMIT_FSIZE`)",
    "unchanged",
    "everything but that process",
    "*Process ... is not in this recording, because its events could not be stored: ... File too large*",
)
@pytest.mark.fault(
    "Its memory is limited (`RLIMIT_AS`)",
    "unchanged",
    "everything but that process",
    "*Process ... is not in this recording, because its events could not be stored: ... Cannot allocate memory*",
)
def test_process_with_file_size_and_memory_limits_is_unharmed_and_reported(training, run_both, check_report):
    limits = """
limited(resource.RLIMIT_FSIZE, 100_000)
limited(resource.RLIMIT_AS, 1 << 20)
"""
    plain, profiled = run_both(training(LIMITED + limits))

    assert re.findall(rb"^(-?\d+)$", plain.out, re.M) == [b"0"] * 2
    assert (profiled.status, profiled.out, profiled.err) == (plain.status, plain.out, plain.err)
    first, second = profiled.problems["ring"]
    assert os.strerror(errno.EFBIG) in first
    assert os.strerror(errno.ENOMEM) in second
    assert check_report(profiled, first, second)["ended"] == "completed"
    assert len(profiled.steps) == 1


@pytest.mark.fault(
    "Its file size is limited, and it dies by `SIGXFSZ` when it exceeds the limit",
    "unchanged",
    "everything but that process",
    "*Process ... is not in this recording, because its events could not be stored: ... File too large*",
)
@pytest.mark.fault(
    "Its number of open files is limited (`RLIMIT_NOFILE`)",
    "unchanged",
    "everything but that process",
    "*Process ... is not in this recording, because its events could not be stored: ... Too many open files*",
)
def test_process_that_cannot_open_or_write_files_is_unharmed_and_reported(training, run_both, check_report):
    limits = """
limited(resource.RLIMIT_FSIZE, 100_000, handler=signal.SIG_DFL)
limited(resource.RLIMIT_NOFILE, 3)
"""
    plain, profiled = run_both(training(LIMITED + limits))

    assert re.findall(rb"^(-?\d+)$", plain.out, re.M) == [b"0"] * 2
    assert (profiled.status, profiled.out, profiled.err) == (plain.status, plain.out, plain.err)
    first, second = profiled.problems["ring"]
    assert os.strerror(errno.EFBIG) in first
    assert os.strerror(errno.EMFILE) in second
    assert check_report(profiled, first, second)["ended"] == "completed"
    assert len(profiled.steps) == 1
