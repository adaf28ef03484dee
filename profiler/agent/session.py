"""The agent of one process: its settings, its outlet, and the hooks that are in."""

from __future__ import annotations

import os
import sys
from typing import Any, Callable, Optional

from .outlet import Outlet, clock
from .ring import BATCH, BACKWARD, FETCH, FORWARD, OPTIMIZER, STEP, REGION, ITER

# Events that make a process one of the run; a collection or a save alone does not.
_TRAINING = frozenset((FETCH, ITER, FORWARD, BACKWARD, OPTIMIZER, STEP, BATCH, REGION))

# As in profiler.schema, which the agent cannot import.
TAG_WINDOW = 8
TAG_COMPILE = 16

# Rare facts are refreshed at most this often.
TICK_NS = 500_000_000


class Agent:
    """State shared by the hooks. `write(kind, start_ns, end_ns, ...)` is the outlet's, or opens it first."""

    def __init__(self, torch: Any, settings: dict[str, Any]) -> None:
        self.torch = torch
        self.settings = settings
        self.folder: str = settings["rings"]
        self.outlet: Optional[Outlet] = None
        self.write: Callable[..., None] = self._first_write
        self.started = clock()
        self.steps = 0
        self.next_tick = 0
        self.backward_depth = 0
        self.loader = 0
        """The DataLoader that is being iterated; 0 if unknown, as in workers that were spawned."""
        self.failed = False
        """An exception has reached the top."""
        self.windows: Any = None
        self._window_open = False
        self._window_just_closed = False
        self.compiled: Optional[Callable[[], int]] = None
        """How many graphs torch.compile has made, once the program uses it."""
        self._graphs = 0
        self.mark: Optional[Callable[[int], None]] = None
        """Records a CUDA event at a boundary (ring.MARK_*); None where there is no CUDA."""
        self.uninstall: list[tuple[str, Callable[[], None]]] = []
        self.on_open: list[Callable[[], None]] = []
        self.on_step: list[Callable[[int], None]] = []
        """Called at each step's end with its time; what takes long is measured there."""
        self.on_tick: list[Callable[[], None]] = []

    # ---- the outlet ----

    def _first_write(self, kind: int, *arguments: Any, **named: Any) -> None:
        if kind not in _TRAINING:
            return
        try:
            self.outlet = Outlet(self.folder, worker=kind == BATCH and self.is_worker)
        except OSError as error:
            self.write = _nothing
            self._no_room(error)
            return
        self.write = self.outlet.write
        for callback in self.on_open:
            callback()
        self.write(kind, *arguments, **named)

    def _no_room(self, error: OSError) -> None:
        try:
            with open(os.path.join(self.folder, "problems"), "a") as file:
                file.write(f"{os.getpid()} no ring: {error}\n")
        except OSError:
            return

    @property
    def is_worker(self) -> bool:
        """This process is a DataLoader worker."""
        data = sys.modules.get("torch.utils.data._utils.worker")
        return data is not None and getattr(data, "_worker_info", None) is not None

    def fact(self, kind: str, body: dict[str, Any]) -> None:
        """A structured fact; dropped while this process is none of the run."""
        if self.outlet is not None:
            self.outlet.fact(kind, body)

    def give_up(self, source: str, error: BaseException) -> None:
        """A hook of ours has raised: take it out, say so, let training go on."""
        for entry in list(self.uninstall):
            if entry[0] == source:
                self.uninstall.remove(entry)
                try:
                    entry[1]()
                except Exception:
                    pass
        if self.outlet is not None:
            self.outlet.problem(source, f"{type(error).__name__}: {error}")

    # ---- the rhythm ----

    def end_step(self, now: int) -> int:
        """Called by whatever ends a step; returns the step's tags."""
        outlet = self.outlet
        self.steps += 1
        tags = 0
        for callback in self.on_step:
            callback(now)
        if self.windows is not None:
            # A window opened at one boundary covers the steps after it; saving it falls into the one after those.
            if self._window_open or self._window_just_closed:
                tags |= TAG_WINDOW
            self._window_just_closed = self._window_open
            self._window_open = self.windows.at_step_boundary(now)
        if self.compiled is not None:
            graphs = self.compiled()
            if graphs != self._graphs:
                self._graphs = graphs
                tags |= TAG_COMPILE
        if now >= self.next_tick and outlet is not None:
            self.next_tick = now + TICK_NS
            self.tick()
        return tags

    def tick(self) -> None:
        """Refresh what is refreshed seldom; its time is counted as ours."""
        outlet = self.outlet
        if outlet is None:
            return
        begin = clock()
        for callback in self.on_tick:
            callback()
        outlet.measured_ns += clock() - begin
        outlet.publish()

    # ---- ends ----

    def after_fork(self) -> None:
        """In a child: nothing of the parent's is ours; its first event opens its own outlet."""
        self.outlet = None
        self.write = self._first_write
        self.windows = None
        self.steps = 0
        self.backward_depth = 0

    def stop(self) -> None:
        """Take every hook out and close the outlet."""
        for source, undo in reversed(self.uninstall):
            try:
                undo()
            except Exception as error:
                if self.outlet is not None:
                    self.outlet.problem(source, f"could not be taken out: {error}")
        self.uninstall.clear()
        self.finish()

    def finish(self) -> None:
        """The last facts, at exit."""
        outlet = self.outlet
        if outlet is None or outlet.pid != os.getpid():
            return
        try:
            if self.windows is not None:
                self.windows.close()
            self.tick()
            outlet.fact("end", {"failed": self.failed})
        except Exception as error:
            outlet.problem("exit", f"{type(error).__name__}: {error}")
        self.outlet = None
        self.write = _nothing
        outlet.close()


def _nothing(*arguments: Any, **named: Any) -> None:
    """Nothing is recorded."""


def place() -> Optional[dict[str, Any]]:
    """The innermost line of the user's own code on the stack: not torch's, not an installed package's, not ours."""
    frame: Any = sys._getframe(1)
    fallback = None
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith("<") and _OURS not in file:
            line = {"file": os.path.abspath(file), "line": frame.f_lineno}
            if "site-packages" not in file and "dist-packages" not in file and not file.startswith(_STDLIB):
                return line
            if fallback is None and f"{os.sep}torch{os.sep}" not in file:
                fallback = line
        frame = frame.f_back
    return fallback


_OURS = os.path.dirname(os.path.abspath(__file__))
_STDLIB = os.path.dirname(os.path.abspath(os.__file__))
