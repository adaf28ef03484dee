"""A program runs the same under profile-train: only the report is added."""

import fcntl
import os
import re
import signal
import stat
import subprocess
import sys
from collections import Counter
from pathlib import Path

import psutil
import pytest
from programs import COMMAND, TORCH, wait_until

SAYS_WHAT_IT_SEES = """
    import os, sys
    print(sys.argv, sys.path, os.getcwd(), __name__, __file__, sys.flags, sys.orig_argv[1:], sep="\\n")
    print([name for name in sys.modules if "sitecustomize" in name])
"""


def same(plain, profiled):
    assert (plain.status, plain.out, plain.err) == (profiled.status, profiled.out, profiled.err)


# ---- a program without torch ----


@pytest.mark.parametrize(
    ("ending", "status"),
    [
        ("", 0),
        ("sys.exit(3)", 3),
        ("sys.exit('no data')", 1),
        ("raise ValueError('no data')", 1),
        ("raise ValueError('no data') from KeyError('x')", 1),
        ("os._exit(5)", 5),
        ("os.kill(os.getpid(), signal.SIGSEGV)", -signal.SIGSEGV),
        ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
        ("os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM),
        ("threading.Thread(target=lambda: 1 / 0).start()", 0),
        ("import missing_module", 1),
        ("}", 1),
    ],
)
def test_output_and_status_are_those_of_the_plain_run(script, run_both, ending, status):
    program = script(
        f"""
        import os, resource, signal, sys, threading
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        sys.stdout.buffer.write(bytes(range(256)))
        sys.stdout.flush()
        print("to stderr", file=sys.stderr, flush=True)
        {ending}
        """
    )
    plain, profiled = run_both(program)

    assert plain.status == status
    same(plain, profiled)


def test_arguments_after_script_are_passed_to_it(script, run_both):
    program = script(SAYS_WHAT_IT_SEES)
    plain, profiled = run_both(program, "--out", "x", "--help", "--", "-m", "", "a b", "*", "--no-report", "--version")

    assert b"'--out', 'x', '--help', '--', '-m', '', 'a b', '*', '--no-report', '--version'" in plain.out
    same(plain, profiled)


@pytest.mark.parametrize("environment", [{}, {"PYTHONPATH": "somewhere"}, {"PYTHONPATH": f"{os.pathsep}a{os.pathsep}"}])
def test_a_program_in_another_folder_sees_the_same_paths(script, run_both, tmp_path, environment):
    script(SAYS_WHAT_IT_SEES, "code/train.py")
    (tmp_path / "elsewhere").mkdir()
    plain, profiled = run_both("../code/train.py", cwd=tmp_path / "elsewhere", env=environment)

    same(plain, profiled)


def test_module_runs_as_with_python_m(script, run_both):
    script("", "package/__init__.py")
    script(SAYS_WHAT_IT_SEES + "    from . import helper", "package/train.py")
    script("print('helper', __package__)", "package/helper.py")
    plain, profiled = run_both("-m", "package.train", "--lr", "1", "-m")

    assert b"helper package" in plain.out
    same(plain, profiled)


def test_folder_with_dunder_main_is_run(script, run_both):
    script(SAYS_WHAT_IT_SEES, "app/__main__.py")

    same(*run_both("app", "x"))


def test_stdin_is_passed_through(script, run_both):
    program = script("import sys; data = sys.stdin.buffer.read(); print(len(data), hash(data) == hash(bytes(70000)))")
    plain, profiled = run_both(program, stdin=bytes(70000))

    assert plain.out == b"70000 True\n"
    same(plain, profiled)


@pytest.mark.parametrize(
    "words", [("python",), ("python", "-u"), ("env", "A=1", "python"), ("sh", "run.sh"), ("./run.sh",)]
)
def test_any_launcher_runs_unchanged(script, start, start_profiled, words):
    program = script("import sys; print(sys.argv, sys.path)\nif len(sys.argv) > 1: sys.exit(4)")
    launcher = script('#!/bin/sh\necho launched\nexec python "$@"', "run.sh")
    launcher.chmod(0o755)
    command = start(*words, program, "--lr", "--out").finish()
    profiled = start_profiled(*words, program, "--lr", "--out").finish()

    assert command.status == 4
    same(command, profiled)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("missing.py",), "no script 'missing.py'"),
        (("misspelled-command",), "no script and no command 'misspelled-command'"),
        (("-m",), "-m needs a module"),
        (("broken-launcher",), "could not be started"),
        ((), "nothing to run"),
    ],
)
def test_command_that_cannot_run_gives_message_and_leaves_no_files(script, run_profiled, tmp_path, words, sentence):
    broken = script("#!/no/such/interpreter\n", "broken-launcher")
    broken.chmod(0o755)
    rings = set(Path("/dev/shm").glob("profile-train-*"))
    ran = run_profiled(*words, env={"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"})

    assert ran.status in (1, 2)
    assert sentence in ran.err.decode()
    assert b"Traceback" not in ran.err
    assert ran.out == b""
    assert not ran.folder.exists()
    assert not {ring for ring in set(Path("/dev/shm").glob("profile-train-*")) - rings if not any(ring.iterdir())}


def test_the_sitecustomize_of_the_user_is_run(script, run_both, tmp_path):
    script("import builtins, sys; builtins.seen = (__name__, __file__, sys.path[:], sys.argv)", "site/sitecustomize.py")
    program = script("import sitecustomize, sys; print(seen, sitecustomize, sys.path)")
    plain, profiled = run_both(program, env={"PYTHONPATH": str(tmp_path / "site")})

    assert plain.out.startswith(b"('sitecustomize', ")
    same(plain, profiled)


def test_broken_user_sitecustomize_fails_as_in_plain_run(script, run_both, tmp_path):
    script("raise ImportError('mine is broken')", "site/sitecustomize.py")
    program = script("print('trains on')")
    plain, profiled = run_both(program, env={"PYTHONPATH": str(tmp_path / "site")})

    assert (plain.status, plain.out) == (profiled.status, profiled.out) == (0, b"trains on\n")
    assert profiled.err.decode().splitlines()[-1] == plain.err.decode().splitlines()[-1]


def test_program_imports_its_own_modules_with_our_names(script, run_both):
    script("whose = 'the program'", "profiler.py")
    script("whose = 'the program'", "advisor/__init__.py")
    script("whose = 'the program'", "templates/__init__.py")
    program = script(
        """
        import advisor, profiler, templates, torch
        print(advisor.whose, profiler.whose, templates.whose)
        layer = torch.nn.Linear(1, 1)
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        for _ in range(5):
            layer(torch.ones(1, 1)).sum().backward()
            optimizer.step()
        """
    )
    plain, profiled = run_both(program)

    assert plain.out == b"the program the program the program\n"
    same(plain, profiled)
    assert len(profiled.steps) == 5


def test_run_folder_is_private_and_stores_no_environment_variables(script, run_profiled):
    program = script("import torch; torch.utils.data.DataLoader([1]).__iter__()")
    before = os.umask(0)
    try:
        ran = run_profiled(program, options=("--no-windows",), env={"SECRET_TOKEN": "correct-horse-battery"})
    finally:
        os.umask(before)

    assert ran.status == 0
    assert stat.S_IMODE(ran.folder.stat().st_mode) == 0o700
    files = [path for path in ran.folder.rglob("*") if path.is_file()]
    assert {"result.json", "report.html", "report.md"} < {path.name for path in files}
    for path in files:
        text = path.read_bytes()
        assert b"correct-horse-battery" not in text
        assert b"SECRET_TOKEN" not in text
    assert ran.out == b""


def test_falls_back_to_another_run_folder_and_names_it(script, run_profiled, tmp_path):
    (tmp_path / "file").write_text("mine")
    ran = run_profiled(script("print('trains')"), out=tmp_path / "file" / "run", env={"TMPDIR": str(tmp_path)})

    assert (ran.status, ran.out) == (0, b"trains\n")
    assert str(tmp_path / "file" / "run") in ran.err.decode()
    folder = Path(ran.err.decode().rpartition("kept in ")[2].strip().removesuffix("."))
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert list(folder.glob("run-*.db"))
    assert (tmp_path / "file").read_text() == "mine"


def test_program_modules_do_not_shadow_ours(script, run_both, tmp_path):
    program = script("import click, profiler, psutil; print(click.me, profiler.me, psutil.me)")
    for name in ("click", "profiler", "psutil"):
        script("import sys; me = 'mine'; print('of', sys.argv)", f"modules/{name}.py")
    plain, profiled = run_both(program, env={"PYTHONPATH": str(tmp_path / "modules")})
    same(plain, profiled)
    assert profiled.status == 0
    assert list(profiled.folder.glob("*.db"))


def test_program_runs_unrecorded_if_pythonpath_is_full(script, start, tmp_path):
    """The kernel limits each variable to 128 KiB."""
    program = script("import os; print(len(os.environ['PYTHONPATH']))")
    most = "/none:" * 30_000
    env = {**os.environ, "PYTHONPATH": most[: (1 << 17) - len("PYTHONPATH=") - 1]}
    ran = start(*COMMAND, "--out", tmp_path / "run", program, env=env).finish()
    assert (ran.status, ran.out) == (0, b"%d\n" % len(env["PYTHONPATH"]))
    assert not (tmp_path / "run").exists()


# ---- signals ----

WAITS = """
    import signal, sys, time
    def handler(number, frame):
        print("got", signal.Signals(number).name, flush=True)
        sys.exit(7)
    signal.signal(signal.SIGTERM, handler)
    signal.signal(signal.SIGUSR1, lambda number, frame: print("checkpoint", flush=True))
    print("ready", flush=True)
    try:
        while True:
            time.sleep(60)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        time.sleep(0.5)
        raise
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT])
def test_signal_to_profiler_alone_reaches_program(script, start_plain, start_profiled, number):
    program = script("import resource; resource.setrlimit(resource.RLIMIT_CORE, (0, 0))\n" + _dedented(WAITS))
    ended = []
    for start in (start_plain, start_profiled):
        running = start(program)
        running.wait_for("ready\n")
        running.send(number)
        ended.append(running.finish())

    assert ended[0].status == {signal.SIGTERM: 7, signal.SIGINT: -2, signal.SIGHUP: -1, signal.SIGQUIT: -3}[number]
    same(*ended)
    assert ended[1].run.outcome == ("failed" if number == signal.SIGTERM else "killed")


def test_signal_handled_by_program_does_not_end_recording(script, start_profiled):
    running = start_profiled(script(WAITS))
    running.wait_for("ready")
    running.send(signal.SIGUSR1)
    running.wait_for("checkpoint")
    running.send(signal.SIGTERM)

    ended = running.finish()
    assert ended.status == 7
    assert ended.run.outcome == "failed"


@pytest.mark.parametrize("how", ["Ctrl-C", "kill"])
def test_interrupt_of_process_group_reaches_program_once(script, start_plain, start_profiled, how):
    program = script(WAITS)
    ended = []
    for start in (start_plain, start_profiled):
        running = start(program, terminal=how == "Ctrl-C")
        running.wait_for("ready")
        if how == "kill":
            os.killpg(running.pid, signal.SIGINT)
        else:
            os.write(running.terminal, b"\x03")
        ended.append(running.finish())

    assert ended[0].status == -signal.SIGINT
    assert ended[1].out.count(b"interrupted") == 1
    same(*ended)


COUNTS = """
    import os, signal
    def handler(number, frame):
        print("got", number, flush=True)
        if number == signal.SIGTERM:
            os._exit(5)
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD}:
        signal.signal(number, handler)
    print("ready", os.getpid(), flush=True)
    while True:
        signal.pause()
"""


def test_every_signal_reaches_program_once_without_ending_profiler(script, start_profiled):
    """Sent to us alone, to the program alone, to the process group, and to each process in turn, as some schedulers
    do."""
    numbers = sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD, signal.SIGTERM})
    running = start_profiled(script(COUNTS))
    program = int(re.search(r"ready (\d+)\n", running.wait_for("\n"))[1])

    def send_to_each(number):
        for pid in (running.pid, *(child.pid for child in psutil.Process(running.pid).children())):
            os.kill(pid, number)

    def send_to_program(number):
        os.kill(program, number)

    for send in (running.send, send_to_program, lambda number: os.killpg(running.pid, number), send_to_each):
        for number in numbers:
            before = running.out.count(f"got {number}\n")
            send(number)
            wait_until(lambda number=number, before=before: running.out.count(f"got {number}\n") > before, number)
    running.send(signal.SIGTERM)
    ran = running.finish()

    assert ran.status == 5
    assert Counter(map(int, re.findall(rb"got (\d+)", ran.out))) == {**dict.fromkeys(numbers, 4), signal.SIGTERM: 1}
    assert ran.run.outcome == "failed"


NO_PROCESS = """
import errno, os, sys
sys.path.insert(0, sys.argv.pop(1))
from profiler import launch
def refused(*words, **how):
    raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
os.posix_spawn = refused
launch.record(tuple(sys.argv[1:]), None)
"""


@pytest.mark.process
def test_program_runs_unrecorded_if_process_limit_is_reached(script, tmp_path):
    """RLIMIT_NPROC does not apply to root."""
    program = script("import os, signal, sys; print(signal.getsignal(signal.SIGXFSZ)); sys.exit(3)")
    alone = subprocess.run([sys.executable, program], capture_output=True, cwd=tmp_path)
    command = [sys.executable, "-c", NO_PROCESS, COMMAND[-1], program]
    found = subprocess.run(command, capture_output=True, cwd=tmp_path)

    assert (found.returncode, found.stdout) == (alone.returncode, alone.stdout)
    assert b"Nothing is recorded" in found.stderr
    assert not list(tmp_path.rglob("run-*"))


def test_profiler_stops_and_continues_with_program(script, start_profiled):
    running = start_profiled(script("import os, time\nprint('pid', os.getpid(), flush=True)\ntime.sleep(600)"))
    program = int(running.wait_for("\n").split()[-1])

    def state(pid):
        return psutil.Process(pid).status()

    for continued in (program, running.pid):
        os.kill(program, signal.SIGSTOP)  # SIGTSTP does not stop a group without a shell
        wait_until(lambda: state(running.pid) == state(program) == psutil.STATUS_STOPPED, "both stopped")
        os.kill(continued, signal.SIGCONT)
        wait_until(lambda: psutil.STATUS_STOPPED not in (state(running.pid), state(program)), "both go on")
    running.send(signal.SIGTERM)
    assert running.finish().status == -signal.SIGTERM


@pytest.mark.process
def test_descriptors_closed_by_program_are_not_held_by_profiler(script, tmp_path):
    """The caller sees the end of its output, a closed input and a free lock while the program still runs."""
    program = script(
        """
        import os, sys, time
        for number in (0, 1, int(sys.argv[1])):
            os.close(number)
        while not os.path.exists(sys.argv[2]): time.sleep(0.01)
        """
    )
    with (tmp_path / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        running = subprocess.Popen(
            [*COMMAND, "--no-report", "--out", tmp_path / "run", program, str(lock.fileno()), tmp_path / "go"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=[lock.fileno()],
        )
    with running:
        assert running.stdout.read() == b""
        with (tmp_path / "lock").open() as again:
            fcntl.flock(again, fcntl.LOCK_EX)
        with pytest.raises(BrokenPipeError):
            os.write(running.stdin.fileno(), b"x")
        (tmp_path / "go").touch()
        assert running.wait() == 0


def _dedented(text):
    return "\n".join(line.removeprefix("    ") for line in text.splitlines())


# ---- errors ----

FAILS = """
import logging, sys, threading, traceback, torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
torch.set_num_threads(1)

class Squares(Dataset):
    def __len__(self): return 40
    def __getitem__(self, index):
        if where.endswith("dataset") and index == 33: raise OSError("torn image")
        return torch.full((4,), float(index))

def collate(samples):
    if where == "collate" and len(samples) < 7: raise ValueError("short batch")
    return torch.stack(samples)

class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return x * 2
    @staticmethod
    def backward(ctx, gradient):
        if where in ("backward", "thread") and step == 4: raise RuntimeError("no gradient")
        return gradient * 2

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Sequential(nn.Linear(4, 4), Diverging())
    def forward(self, x): return Double.apply(self.layer(x))

class Diverging(nn.Module):
    def forward(self, x):
        if where.startswith("forward") and step == int(where[-1]): raise ArithmeticError("diverged")
        return x

def closure():
    if where == "closure" and step == 4: raise ValueError("no loss")

def train():
    global step
    loader = DataLoader(Squares(), 7, collate_fn=collate, num_workers=int(where.startswith("worker")))
    for step, batch in enumerate(loader, 1):
        loss = model(batch).sum()
        loss.backward()
        if where == "backward twice": loss.backward()
        if where == "no gradient": torch.autograd.grad(batch.sum(), batch)
        optimizer.step(closure if where == "closure" else None)
        if where == "save": torch.save(model.state_dict(), "/no/such/folder/model.pt")
        if where == "log": return logging.warning("loss %d", "nan")

model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
*caught, uncaught = sys.argv[1:]
for where in caught:
    try:
        if where == "thread":
            thread = threading.Thread(target=train)
            thread.start(); thread.join()
        else:
            train()
    except Exception:
        traceback.print_exc()
where = uncaught
train()
"""


@pytest.mark.parametrize(
    "where",
    [
        (
            *("forward 1", "dataset", "worker dataset", "collate", "backward", "backward twice", "no gradient"),
            *("closure", "save", "log", "thread", "dataset"),
        ),
        ("forward 5",),
        ("backward",),
    ],
    ids=lambda where: where[-1],
)
def test_program_errors_show_no_profiler_frames(tmp_path, run_both, where):
    program = tmp_path / "train.py"
    program.write_text(TORCH + FAILS)
    plain, profiled = run_both(program, *where)

    assert plain.err.count(b"Traceback") >= len(where)
    errors = [ran.err.decode() for ran in (plain, profiled)]
    if len(where) > 1:  # in an error caught in a root's first call, torch's own frame is at another line
        errors = [re.sub(r"line \d+, (in _wrapped_call_impl)\n.*\n *[~^]+\n", r"\1\n", each) for each in errors]
    assert errors[0].splitlines() == errors[1].splitlines()
    assert (plain.status, plain.out) == (profiled.status, profiled.out)
