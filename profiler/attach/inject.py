"""Run a few lines of code in a running Python program: in its main thread, between two bytecodes.

From Python 3.14 on, the interpreter offers this (sys.remote_exec). In older versions, profile-train calls
Py_AddPendingCall, the function that C extensions use for it, which needs no interpreter lock and runs nothing itself. A
program in a long native call runs the lines when it returns; if profile-train has stopped waiting by then, they find no
order and do nothing.
"""

import json
import mmap
import os
import random
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Set
from enum import Enum
from pathlib import Path
from typing import Any

from profiler.attach import elf, gdb, ptrace
from profiler.errors import ProfilerError
from profiler.recorder import folder as run_folder

AGENT = Path(__file__).absolute().parents[1] / "agent"

PATIENCE = 60.0
"""Seconds to wait for the program to return from native code."""

LONG = 3.0
"""Seconds of waiting after which the user is informed of the reason."""

PAUSES = {"busy": (0.005, 0.05), "profiled": (1.0, 1.0)}
"""Range of seconds to wait before the next request, by the program's state.

The wait is random, because a fixed one could synchronize with the program's own rhythm. It is long while the program's
profiler records stacks, because each request leaves a mark in that trace.
"""

REASONS = {
    "native": "its main thread has not returned from native code",
    "busy": "it never reached a point at which hooks can be changed",
    "profiled": "its own torch.profiler is recording stacks",
}
"""Why an attempt took long, by the program's state."""

_PAGE = 4096

# The lines have their own namespace, so the program's __main__ does not change.
#
# While torch.profiler records stacks, it keeps the names of called functions as pointers into their code, which must
# still exist when the trace is written. So the code that runs now is kept, and loading more code waits.
_SOURCE = """
with open({order!r}, encoding="utf-8") as file:
    order = file.read()
import json, sys
order = json.loads(order)
package = sys.modules.get("_profile_train_agent")
if package is None or list(package.__path__) != [{agent!r}]:
    for name in list(sys.modules):
        if name.partition(".")[0] == "_profile_train_agent":
            del sys.modules[name]
    package = type(sys)("_profile_train_agent")
    package.__path__ = [{agent!r}]
    sys.modules["_profile_train_agent"] = package
profiled = type(sys.getprofile()).__name__ == "TraceContext"
if profiled:
    frame = sys._getframe()
    package.kept = [*getattr(package, "kept", ()), frame.f_code, frame.f_back.f_code]
    del frame
if sys.version_info < (3, 9):
    answer = {{"state": "failed", "message": "its Python is older than 3.9"}}
elif profiled and order["act"] == "begin":
    answer = {{"state": "profiled"}}
else:
    answer = None
    from _profile_train_agent.attached import act
    act(order)
if answer is not None:
    with open(order["answer"] + ".new", "w", encoding="utf-8") as file:
        json.dump(answer, file)
    import os
    os.rename(order["answer"] + ".new", order["answer"])
"""

_BOOTSTRAP = """try:
    exec(compile({source!r}, "<profile-train>", "exec"), {{"__name__": "_profile_train_attach"}})
except BaseException:
    pass
"""


class Way(Enum):
    """A way to run code in a process, in words."""

    INTERPRETER = "by sys.remote_exec, which the interpreter offers"
    PTRACE = "by ptrace: the program stops for a few milliseconds"
    GDB = "by gdb: the program stops for up to half a second"


def way(pid: int, versions: Set[str] = frozenset()) -> Way:
    """Return the way into a process that maps these Python versions, such as "python3.14".

    Raises:
        ProfilerError: there is no way on this machine.
    """
    if hasattr(sys, "remote_exec") and f"python3.{sys.version_info.minor}" in versions:
        return Way.INTERPRETER
    if ptrace.is_possible(pid):
        return Way.PTRACE
    if gdb.is_there():
        return Way.GDB
    raise ProfilerError(f"To attach on {os.uname().machine}, gdb is needed.", "Install it: apt install gdb")


class Injector:
    """A connection into one process.

    Raises:
        ProfilerError: there is no way into the process.
        PermissionError: the process may not be accessed.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._folder = Path(tempfile.mkdtemp(prefix="profile-train-attach-"))
        self._order = self._folder / "order.json"
        self._bootstrap = self._folder / "bootstrap.py"
        source = _SOURCE.format(order=str(self._order), agent=str(AGENT))
        self._bootstrap.write_text(_BOOTSTRAP.format(source=source), encoding="utf-8")
        self._asked = 0
        self._page = 0
        """Address of the lines in the program; the memory after them is zero, which ends the string."""
        self._waiting = False
        """Whether the injected lines have yet to run."""
        try:
            self._take(way(pid, _versions(pid)))
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise

    def ask(
        self, order: Mapping[str, Any], patience: float = PATIENCE, waits: Callable[[str], None] = lambda reason: None
    ) -> dict[str, Any]:
        """Return the program's answer to an order.

        `waits` is called from time to time with the reason for the wait.

        Raises:
            TimeoutError: no answer came within `patience` seconds.
            ProcessLookupError: the process has ended.
            PermissionError: the process may not be accessed.
        """
        deadline = time.monotonic() + patience
        reason = REASONS["native"]

        def pause(seconds: float) -> None:
            if time.monotonic() > deadline:
                raise TimeoutError(reason)
            waits(reason)
            time.sleep(seconds)

        while True:
            answer = self._post(order)
            while not answer.exists():
                if run_folder.state(self.pid) in ("", "Z", "X"):
                    raise ProcessLookupError("it has ended")
                pause(0.002)
            self._waiting = False
            reply: dict[str, Any] = json.loads(answer.read_text())
            answer.unlink()
            state = reply.get("state")
            if state not in PAUSES:
                return reply
            reason = REASONS[state]
            pause(random.uniform(*PAUSES[state]))

    def _post(self, order: Mapping[str, Any]) -> Path:
        """Have the program carry out an order; return where it will put its answer."""
        self._asked += 1
        answer = self._folder / f"answer-{self._asked}.json"
        temporary = self._order.with_suffix(".new")
        temporary.write_text(json.dumps({**order, "answer": str(answer)}))
        temporary.rename(self._order)
        self._schedule()
        self._waiting = True
        return answer

    def close(self) -> None:
        """Remove everything. A page of memory in the program stays if the injected lines may still be read there."""
        shutil.rmtree(self._folder, ignore_errors=True)
        if self._page and not self._waiting:
            try:
                self._call(self._at["munmap"], self._page, _PAGE)
            except (OSError, ProfilerError):  # it has ended
                return

    # ---- ways ----

    def _take(self, chosen: Way) -> None:
        if chosen is not Way.INTERPRETER:
            self._at = elf.addresses(self.pid)
        self._way = chosen  # set last, because it needs the addresses

    def _schedule(self) -> None:
        """Have the program run the lines."""
        if self._way is Way.INTERPRETER:
            try:
                getattr(sys, "remote_exec")(self.pid, str(self._bootstrap))  # noqa: B009  unknown to older versions
                return
            except RuntimeError:  # PYTHON_DISABLE_REMOTE_DEBUG is set for the program, or its build differs
                self._take(way(self.pid))
        first = not self._page
        if first:
            protection, flags = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
            page = self._call(self._at["mmap"], 0, _PAGE, protection, flags, -1, 0)
            if page in (-1, (1 << 64) - 1):
                raise OSError("The program has no memory left")
            self._page = page
        if (
            self._call(self._at["Py_AddPendingCall"], self._at["PyRun_SimpleString"], self._page, write=first)
            & 0xFFFFFFFF
        ):
            raise OSError("Too many calls are already pending for the program's main thread")

    def _call(self, function: int, *arguments: int, write: bool = False) -> int:
        """Return the result of a call in the program; with `write`, the lines are written to their page first."""
        if self._way is Way.GDB:
            return gdb.call(self.pid, function, *arguments, write=(self._bootstrap, self._page) if write else None)
        with ptrace.undisturbed(), ptrace.Thread(self.pid) as thread:
            if write:
                thread.write(self._page, self._bootstrap.read_bytes())
            return thread.call(function, *arguments)


def _versions(pid: int) -> set[str]:
    """Return the Python versions the process has mapped, such as "python3.14"."""
    return set(re.findall(r"python3\.\d+", Path(f"/proc/{pid}/maps").read_text()))
