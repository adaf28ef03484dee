"""Real programs in real processes: start them, wait for them, kill them, and read what was recorded."""

import contextlib
import fcntl
import os
import pty
import signal
import subprocess
import sys
import termios
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from profiler.store import Tables, decode_fact, find, read

ROOT = Path(__file__).parents[2]

# `-c` puts the current folder first on sys.path, and a program may have its own profiler.py there; the command does
# not.
COMMAND = (
    sys.executable,
    "-c",
    "import sys; sys.path[0] = sys.argv.pop(1); from advisor.cli import main; raise SystemExit(main())",
    str(ROOT),
)
"""The profile-train command of this checkout."""

_IMPORTS = """
import gc, importlib, sys, types, warnings
gc.disable()

class Later(types.ModuleType):
    # Imported on first use, or when the compiler is first used; older torches use some of these during their import.
    def __getattr__(self, name):
        if name.startswith("__") and name != "__path__":
            raise AttributeError(name)
        for later in LATER:
            if isinstance(sys.modules.get(later), Later) and (later != "torch._dynamo" or isinstance(self, Dynamo)):
                del sys.modules[later]
        for later in ("torch.export", "torch._meta_registrations"):
            importlib.import_module(later)
        return getattr(importlib.import_module(self.__name__), name)

class Dynamo(Later):
    disable = staticmethod(lambda fn=None, *_, **__: fn)
    graph_break = staticmethod(lambda *_, **__: None)

LATER = {"torch._dynamo": Dynamo}
for name in ("export", "_meta_registrations", "distributions"):
    LATER["torch." + name] = Later
for name, kind in LATER.items():
    sys.modules.setdefault(name, kind(name))
if "numpy" not in sys.modules:
    sys.modules["numpy"] = None
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch warns once that numpy is missing
    import torch
    torch.tensor([0.0])
if hasattr(torch._C, "_set_generator_metaclass"):  # needed to create a Generator; torch._prims does it too, slowly
    try:
        from torch._custom_class_base import CustomClassBaseMeta
    except ImportError:  # before torch 2.15
        from torch._opaque_base import OpaqueBaseMeta as CustomClassBaseMeta
    torch._C._set_generator_metaclass(CustomClassBaseMeta)
torch._dynamo = sys.modules["torch._dynamo"]
gc.freeze()
gc.enable()
"""
TORCH = f"exec({_IMPORTS!r}, {{}})"
"""The first line of a program whose run time is mostly the imports of torch.

Half of that time is the compiler, and modules that only it and exporting use: torch imports them at its own import and
for the first optimizer; here, a program's first use of them does. A sixth is garbage collection, a sixth numpy.

Test newer torches without triton, like CPU builds: its bindings report frozen objects as leaks at exit.
"""

NUMPY_TORCH = "import numpy\n" + TORCH
"""The same for a program with loaders: the agent inspects their batches if numpy is available."""

QUIET_TRACKER = """
import os
os.environ["PYTHONWARNINGS"] = "ignore:resource_tracker:UserWarning"
"""
"""Start of a program that ignores a warning, which plain programs also get if their workers were not forked.

A queue's feeder, a daemon thread, may hold the last reference to a semaphore. It unlinks the semaphore, and the
interpreter ends before the thread has reported that to the tracker, which then warns of "No such file". In 5 of 9 plain
runs of such a loader the feeder was that thread; delaying the report by a second caused the warning.
"""

TRAINS = (
    TORCH
    + """
import ctypes, gc, os, resource, signal, sys, time
import torch
torch.set_num_threads(1)
torch.manual_seed(0)
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

def train(steps=12, pause=0.005):
    for step in range(steps):
        if step == steps - 1: time.sleep(0.025)  # earlier work is flushed
        loss = model(torch.randn(2, 4)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(pause)
    print(steps, loss.item(), flush=True)
"""
)
"""Start of a program that then has `torch`, `model`, `optimizer` and `train(steps, pause)`."""

ENDS_GROUP = """
import atexit

@atexit.register
def end_group():
    import torch.distributed
    # The model holds the group; its threads would outlive Python, and torch then occasionally ends with SIGABRT.
    for name in ("model", "optimizer", "scheduler"):
        globals().pop(name, None)
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
"""
"""Start of a program with ranks, which then ends without the crash of pytorch's issue 190489.

A function registered before torch is imported runs after the agent's own end, which still reads the model.
"""

ON_RANKS = (sys.executable, str(Path(__file__).with_name("ranks.py")))
"""Start of a command that runs a program on several ranks, without importing torch itself: the number of ranks and the
program follow."""

PATIENCE = 400.0
"""Seconds that a busy machine may need for what takes a few seconds on an idle one."""


@dataclass(frozen=True)
class Ran:
    """A program that has ended."""

    status: int
    """Exit status as subprocess returns it: negative for a signal."""
    out: bytes
    err: bytes
    folder: Path | None = None
    """The run folder."""

    @property
    def tables(self) -> Tables:
        (path,) = find(self.folder)
        return read(path)

    @property
    def run(self):
        (run,) = self.tables.runs
        return run

    @property
    def ranks(self):
        return [process for process in self.tables.processes if process.role == "rank"]

    @property
    def workers(self):
        return [process for process in self.tables.processes if process.role == "worker"]

    @property
    def steps(self):
        return self.tables.steps

    def facts(self, kind):
        """Return the last fact of this kind for each process and id."""
        latest = {}
        for fact in sorted(self.tables.facts, key=lambda fact: fact.time):
            if fact.kind == kind:
                latest[fact.pid, fact.body.get("id")] = decode_fact(fact)
        return list(latest.values())

    @property
    def problems(self):
        """Return the messages by source."""
        found = defaultdict(list)
        for problem in self.tables.problems:
            found[problem.source].append(problem.message)
        return found


def codes(ran, source):
    """Return the codes of the problems that this source reported, in their order."""
    return [problem.code for problem in ran.tables.problems if problem.source == source]


class Running:
    """A program that was started."""

    def __init__(self, words, cwd, out, err, env, stdin, terminal, folder):
        self._out, self._err, self._folder = out, err, folder
        self.terminal = None
        slave = None
        if terminal:
            self.terminal, slave = pty.openpty()
        # Output goes into files: it needs no reader, and a program that outlives its parent has no pipe of ours.
        with out.open("wb") as stdout, err.open("wb") as stderr:
            self.process = subprocess.Popen(
                words,
                cwd=cwd,
                env=env,
                stdin=slave if terminal else subprocess.PIPE if stdin else subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
                preexec_fn=(lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0)) if terminal else None,
            )
        if slave is not None:
            os.close(slave)
        if stdin:
            self.process.stdin.write(stdin)
            self.process.stdin.close()
        self.pid = self.process.pid

    @property
    def out(self):
        return self._out.read_text()

    def wait_for(self, text):
        """Wait until the program has written this; return everything that it has written."""
        return wait_until(lambda: self.out if text in self.out else None, f"{text!r} from {self.process.args!r}")

    def send(self, number):
        os.kill(self.pid, number)

    def finish(self):
        status = self.process.wait(PATIENCE)
        return Ran(status, self._out.read_bytes(), self._err.read_bytes(), self._folder)

    def clear(self):
        """Kill all processes of its session and close its terminal."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.process.wait(PATIENCE)
        if self.terminal is not None:
            os.close(self.terminal)


def wait_until(condition, what):
    """Wait until `condition` returns a true value; return that value."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(0.02)
    raise AssertionError(f"waited {PATIENCE:.0f} s for {what}")


def alive(pid):
    """Return whether a process exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
