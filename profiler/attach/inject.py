"""Have a running Python program run a few lines of ours: in its main thread, between two bytecodes.

From Python 3.14 on the interpreter offers that (sys.remote_exec). Before, the function is called that C extensions use
for it, Py_AddPendingCall, which needs no interpreter lock and runs nothing itself. A program that is in native code for
long runs our lines when it comes back; if we have stopped waiting by then, they find no order and do nothing.
"""

from __future__ import annotations

import json
import mmap
import os
import random
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from profiler.attach import elf, gdb, ptrace
from profiler.errors import ProfilerError

AGENT = Path(__file__).absolute().parents[1] / "agent"

PATIENCE = 60.0
"""Seconds to wait for the program to come back from native code."""

LONG = 3.0
"""Seconds after which the user is told what is waited for."""

PAUSES = 0.005, 0.05
"""Seconds before asking again where hooks could not be changed: of no fixed length, or it could go along with the
program's own rhythm."""

_PAGE = 4096

# The names are in dictionaries of their own: the program's __main__ stays as it is.
_SOURCE = """
with open({order!r}, encoding="utf-8") as file:
    order = file.read()
import sys
package = sys.modules.get("_profile_train_agent")
if package is None or list(package.__path__) != [{agent!r}]:
    for name in list(sys.modules):
        if name.partition(".")[0] == "_profile_train_agent":
            del sys.modules[name]
    package = type(sys)("_profile_train_agent")
    package.__path__ = [{agent!r}]
    sys.modules["_profile_train_agent"] = package
import json
from _profile_train_agent.attached import act
act(json.loads(order))
"""

_BOOTSTRAP = """try:
    exec(compile({source!r}, "<profile-train>", "exec"), {{"__name__": "_profile_train_attach"}})
except BaseException:
    pass
"""


class Injector:
    """The way into one process. Raises ProfilerError if there is none, PermissionError if it is closed to us."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._folder = Path(tempfile.mkdtemp(prefix="profile-train-attach-"))
        self._order = self._folder / "order.json"
        self._bootstrap = self._folder / "bootstrap.py"
        source = _SOURCE.format(order=str(self._order), agent=str(AGENT))
        self._bootstrap.write_bytes(_BOOTSTRAP.format(source=source).encode() + b"\0")
        self._asked = 0
        self._page = 0
        self._waiting = False
        """Our lines are still to be run."""
        try:
            self._schedule = self._way()
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise

    def ask(
        self, order: Mapping[str, Any], patience: float = PATIENCE, waits: Callable[[], None] = lambda: None
    ) -> dict[str, Any]:
        """The program's answer. `waits` is called from time to time. Raises TimeoutError; ProcessLookupError if it has
        ended; PermissionError."""
        deadline = time.monotonic() + patience
        while True:
            answer = self._ask_once(order, deadline, waits)
            if answer.get("state") != "busy":
                return answer
            if time.monotonic() > deadline:
                raise TimeoutError("it was never where hooks can be changed")
            waits()
            time.sleep(random.uniform(*PAUSES))

    def _ask_once(self, order: Mapping[str, Any], deadline: float, waits: Callable[[], None]) -> dict[str, Any]:
        self._asked += 1
        answer = self._folder / f"answer-{self._asked}.json"
        beside = self._order.with_suffix(".new")
        beside.write_text(json.dumps({**order, "answer": str(answer)}))
        beside.rename(self._order)
        self._schedule()
        self._waiting = True
        while not answer.exists():
            if not _is_running(self.pid):
                raise ProcessLookupError("it has ended")
            if time.monotonic() > deadline:
                raise TimeoutError("its main thread has not come back from native code")
            waits()
            time.sleep(0.002)
        self._waiting = False
        told: dict[str, Any] = json.loads(answer.read_text())
        answer.unlink()
        return told

    def close(self) -> None:
        """Leave nothing behind: not even a page of memory, unless our lines may still be read there."""
        shutil.rmtree(self._folder, ignore_errors=True)
        if self._page and not self._waiting:
            try:
                self._call(self._at.munmap, self._page, _PAGE)
            except (OSError, ProfilerError):  # it has ended
                return

    # ---- ways ----

    def _way(self) -> Callable[[], None]:
        if hasattr(sys, "remote_exec") and f"python3.{sys.version_info.minor}" in _versions(self.pid):
            return self._by_interpreter
        self._find()
        return self._by_pending_call

    def _find(self) -> None:
        self._at = elf.addresses(self.pid)
        self._by_gdb = not ptrace.is_possible(self.pid)
        if self._by_gdb and not gdb.is_there():
            raise ProfilerError(f"To attach on {os.uname().machine}, gdb is needed.", "Install it: apt install gdb")

    def _by_interpreter(self) -> None:
        script = self._bootstrap.with_name("script.py")
        if not script.exists():
            script.write_bytes(self._bootstrap.read_bytes().rstrip(b"\0"))
        try:
            getattr(sys, "remote_exec")(self.pid, str(script))  # noqa: B009  unknown to older versions
        except RuntimeError:  # PYTHON_DISABLE_REMOTE_DEBUG is set for it, or its build is another one
            self._find()
            self._schedule = self._by_pending_call
            self._schedule()

    def _by_pending_call(self) -> None:
        if not self._page:
            page = self._call(
                self._at.mmap, 0, _PAGE, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0
            )
            if page in (-1, (1 << 64) - 1):
                raise OSError("The program has no memory left")
            self._page = page
            result = self._call(self._at.add_pending_call, self._at.run_string, page, write=True)
        else:
            result = self._call(self._at.add_pending_call, self._at.run_string, self._page)
        if result & 0xFFFFFFFF:
            raise OSError("Too much is waiting for the program's main thread already")

    def _call(self, function: int, *arguments: int, write: bool = False) -> int:
        if self._by_gdb:
            return gdb.call(self.pid, function, *arguments, write=(self._bootstrap, self._page) if write else None)
        with ptrace.undisturbed(), ptrace.Thread(self.pid) as thread:
            if write:
                thread.write(self._page, self._bootstrap.read_bytes())
            return thread.call(function, *arguments)


def _is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


def _versions(pid: int) -> set[str]:
    """Names like "python3.14" of what the process has mapped."""
    return set(re.findall(r"python3\.\d+", Path(f"/proc/{pid}/maps").read_text()))
