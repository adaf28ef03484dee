"""The agent of one process: its settings, its event writer, and the installed hooks."""

from __future__ import annotations

import os
import posix
import sys
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from .attached import is_abandoned
from .dynamo import compiled_graphs
from .event_writer import EventWriter, clock
from .files import append
from .ranks import worker_info
from .ring import BACKWARD, BATCH, FETCH, FORWARD, ITER, MARK_STEP, OPTIMIZER, REGION, SAVE, STEP

# As in profiler.schema, which the agent cannot import.
TAG_WINDOW = 8
TAG_COMPILE = 16

# Events that make a process part of the run. A garbage collection, a checkpoint or a forward pass alone does not: a
# child process that only predicts trains nothing.
_TRAINING = frozenset((FETCH, ITER, BACKWARD, OPTIMIZER, STEP, BATCH, REGION))

# Events that make up a step. A garbage collection may happen anywhere, and a boundary on the GPU is known later.
_ANATOMY = frozenset((FETCH, ITER, FORWARD, BACKWARD, OPTIMIZER, SAVE, STEP))

# Least ns between flushes, which write events to the ring in batches: packed one after the other, an event costs a
# fifth of what it costs between two tensor operations, where the caches are cold. Flushes happen at the end of a step
# or at a fetch. A killed process loses the step or fetch in progress, and at most this much before it.
FLUSH_NS = 20_000_000

# Interval between refreshes of rare facts: at first TICK_NS, then 1 % of the elapsed time, at most 10 s, so that a run
# of days does not drown in them.
TICK_NS = 500_000_000
SLOWEST_TICK_NS = 10_000_000_000

# Some programs use a new name per iteration: cap what is kept.
MOST_REGIONS = 1_000
OTHERS = "other regions"

# Maximum events waiting for a flush: far more than can gather between two flushes. A process that imports torch and
# never trains keeps no more.
MOST_WAITING = 1 << 16


class Agent:
    """The state that the hooks share.

    Hooks add events with `put((thread, kind, start_ns, end_ns, id, a, b, c, d))`, where trailing fields after `end_ns`
    may be omitted. They call `flush` once `flushed` is FLUSH_NS ago.
    """

    def __init__(self, torch: Any, settings: dict[str, Any]) -> None:
        self.torch = torch
        self.settings = settings
        self.folder: str = settings["rings"]
        self.event_writer: EventWriter | None = None
        self._events: deque[tuple[int, ...]] = deque(maxlen=MOST_WAITING)
        self.put: Callable[[tuple[int, ...]], None] = self._events.append
        self.flushed = self._begun = clock()
        self.attend = 0
        """The clock time (ns) from which the end of a step requires more than its event.

        Until then, hooks do as little as possible: everything they touch evicts the program's own code and data from
        the caches.
        """
        self.fetch_due = sys.maxsize
        """The clock time (ns) from which batches must be inspected.

        In long steps, every flush comes just before a fetch, so without this, no fetch would come after `attend`.
        """
        self._muted = False
        self._turn: list[None] = [None]
        """A token held by the thread that moves events to the ring."""
        self.steps = 0
        self.next_tick = 0
        self.own_steps = False
        """Whether the program calls `profiler.step()`; its optimizers then end no step."""
        self.in_backward: set[int] = set()
        """The threads in a backward pass that they started."""
        self.in_forward: set[int] = set()
        """The threads in the call of a root module."""
        self.in_save: set[int] = set()
        """The threads that are writing a checkpoint."""
        self.loader = 0
        """The DataLoader being iterated; 0 if unknown, as in spawned workers."""
        self.failed = False
        """Whether an uncaught exception ended the program."""
        self.attached = "recorder" in settings
        """Whether the hooks were attached to a running program; they then stay only as long as the command that
        attached them."""
        self.abandoned = False
        """Whether that command is gone; the next hook that can do so then calls `leave`."""
        self.leave: Callable[[], None] = lambda: None
        """Removes all hooks."""
        self._finalizer: Any = None
        self.on_model: list[Callable[[Any], None]] = []
        """Called with each root module, once it is known to be a root."""
        self.on_call: list[Callable[[Any], None]] = []
        """Called with each root module at its first call, before it computes anything."""
        self.losses: list[Any] = []
        """In a trial, the loss tensors of all backward passes."""
        self.on_failure: list[Callable[[], None]] = []
        """Called when an uncaught exception ends the program."""
        self.windows: Any = None
        self.window_open = False
        self._window_just_closed = False
        self._graphs = 0
        """How many graphs torch.compile had compiled when the last step ended."""
        self.mark: Any = None
        """Records a CUDA event at a boundary (ring.MARK_*); None if torch was built without CUDA."""
        self.capturing: list[int] = []
        """For each CUDA graph being captured, the number of the optimizer that has run in it, or 0."""
        self.captured = False
        """Whether a CUDA graph has been captured since the last step ended."""
        self.uses_graphs = False
        """Whether a CUDA graph has been captured or replayed."""
        self.dynamo: list[Any] = []
        """Non-empty once `torch._dynamo` is imported: only then can torch.compile be looking at a frame."""
        self._unreported: list[tuple[str, BaseException]] = []
        """Problems that occurred before there was an event writer."""
        self._regions: dict[str, int] = {}
        """The number of each named region."""
        self.uninstall: list[tuple[str, Callable[[], None]]] = []
        """The name of a hook and the undo function of one of its parts, for each part."""
        self.on_open: list[Callable[[], None]] = []
        self.on_step: list[Callable[[], None]] = []
        self.on_tick: list[Callable[[], None]] = []

    # ---- the event writer ----

    def flush(self, opening: frozenset[int] = _TRAINING) -> None:
        """Move the waiting events to the ring; the first event of a kind in `opening` creates it."""
        self.flushed = clock()
        events = self._events
        event_writer = self.event_writer
        if event_writer is None:
            if self._muted or not self._has(opening):
                return
            event_writer = self._open()
            if event_writer is None:
                events.clear()
                return
        try:
            self._turn.pop()  # atomic; events of one thread must stay in order, so two threads never write at once
        except IndexError:
            return
        write = event_writer.write
        try:
            while True:
                try:
                    write(*events.popleft())
                except IndexError:  # no events left
                    return
                except Exception as error:  # a module's `training` can be anything: only that event is lost
                    self.problem("events", error)
        finally:
            self._turn.append(None)

    def _has(self, kinds: frozenset[int]) -> bool:
        try:
            return any(event[1] in kinds for event in tuple(self._events))
        except RuntimeError:  # another thread has put an event: the next flush looks again
            return False

    def _open(self) -> EventWriter | None:
        self._muted = True  # for other threads while this one opens the event writer, and for good if that fails
        try:
            event_writer = self.event_writer = EventWriter(self.folder, worker=self.is_worker)
        except Exception as error:  # an audit hook of the program may raise any exception
            self.abandoned = is_abandoned(self.settings)
            self._no_room(error)
            return None
        self._muted = False
        util = sys.modules.get("multiprocessing.util")
        if util is not None:  # a forked worker runs only its finalizers when it ends
            self._finalizer = util.Finalize(None, self.finish, exitpriority=0)
        self._call(self.on_open)
        for source, problem in self._unreported:
            self.problem(source, problem)
        self._unreported.clear()
        return event_writer

    def _no_room(self, error: Exception) -> None:
        reason = error if isinstance(error, OSError) else type(error).__name__  # other messages may be private
        report = f"{posix.getpid()} {clock()} {reason}"
        try:
            append(f"{self.folder}/problems", report.encode(errors="replace") + b"\n", os.O_CREAT)
        except Exception:
            try:  # a symlink needs no descriptor (there may be none left), and its target can be any text
                posix.symlink(report, f"{self.folder}/{posix.getpid()}.problem")
            except Exception:
                return

    @property
    def is_worker(self) -> bool:
        """Return whether this process is a DataLoader worker."""
        return worker_info() is not None

    def is_recomputing(self) -> bool:
        """Return whether this thread is in a backward pass, as the thread that started it or as one of autograd's."""
        threads = self.in_backward
        return bool(threads) and (ident() in threads or ident() not in threading._active)  # type: ignore[attr-defined]

    def fail(self, error: dict[str, Any]) -> None:
        """Record an uncaught exception.

        An error with a message, such as out of memory, is recorded even if the program only had its first forward pass:
        it was going to train.
        """
        self.flush(_TRAINING | {FORWARD} if error["message"] else _TRAINING)
        self.fact("error", error)
        self.on_model.clear()  # nothing can be changed anymore
        self._call(self.on_failure)

    def last_seen(self) -> tuple[int, int]:
        """Return when this thread last finished a part of a step (ns), and the kind of that event.

        If a flush came later, the time is that of the flush. The kind is 0 if it is no longer known.
        """
        thread = ident()
        try:
            for event in reversed(self._events):
                if event[0] == thread and event[1] in _ANATOMY:
                    return max(event[3], self.flushed), event[1]
        except RuntimeError:  # another thread has put an event
            pass
        return self.flushed, 0

    def fact(self, kind: str, body: dict[str, Any]) -> None:
        """Write a structured fact; dropped while this process is not part of the run."""
        if self.event_writer is not None:
            self.event_writer.fact(kind, body)

    def install(self, source: str, install: Callable[[], None]) -> None:
        """Install a hook; one that cannot be installed is left out and reported."""
        try:
            install()
        except Exception as error:
            self.give_up(source, error)

    def change(self, changes: list[Callable[[Any], None]], module: Any) -> None:
        """Make the changes of a trial to a root module."""
        for change in changes:
            try:
                change(module)
            except Exception as error:
                self.problem("trial", error)

    def give_up(self, source: str, error: BaseException) -> None:
        """Remove a hook that has raised and report the error; training continues."""
        self.remove(source)
        self.problem(source, error)

    def remove(self, source: str) -> None:
        """Remove every hook that `source` installed, the last one first."""
        for entry in self.uninstall[::-1]:
            if entry[0] == source:
                self.uninstall.remove(entry)
                try:
                    entry[1]()
                except Exception:
                    pass

    def problem(self, source: str, error: BaseException) -> None:
        """Report what could not be measured, as soon as there is an event writer."""
        if self.event_writer is None:
            self._unreported.append((source, error))
        else:
            code = getattr(error, "problem_code", None)
            message = f"{error}" if code else f"{type(error).__name__}: {error}"
            self.fact("problem", {"source": source, "message": message, "code": code or type(error).__name__})

    def _call(self, callbacks: list[Callable[[], None]]) -> None:
        """Call each callback; one that raises is removed, and the hook that called it stays."""
        for callback in tuple(callbacks):
            try:
                callback()
            except Exception as error:
                if callback in callbacks:
                    callbacks.remove(callback)
                self.give_up(getattr(callback, "__qualname__", "callback"), error)

    def is_capturing(self) -> bool:
        """Return whether a CUDA graph is being captured, by torch or another library. CUDA must not be called then."""
        if self.capturing:
            return True
        cuda = self.torch.cuda
        return bool(cuda.is_initialized() and cuda.is_current_stream_capturing())

    # ---- steps and ticks ----

    def end_step(self, now: int) -> int:
        """End a step and return its tags."""
        self.steps += 1
        tags = 0
        if self.on_step:
            self._call(self.on_step)
        if self.windows is not None:
            # A window opened at a boundary covers the steps after it; it is saved during the step after those.
            if self.window_open or self._window_just_closed:
                tags |= TAG_WINDOW
            self._window_just_closed = self.window_open
            self.window_open = self.windows.at_step_boundary(now, self.steps)
        graphs = compiled_graphs()
        if graphs != self._graphs:
            self._graphs = graphs
            tags |= TAG_COMPILE
        if self.captured:
            self.captured = False
            tags |= TAG_COMPILE
        return tags

    def declare_step(self) -> None:
        """End a step where the program has declared its end."""
        try:
            if self.mark is not None:
                self.mark(MARK_STEP)
            now = clock()
            self.own_steps = True
            self.put((ident(), STEP, now, now, 0, self.end_step(now)))
            self.after_step(now)
        except Exception as error:
            self.problem("step", error)

    def region(self, name: str, begin_ns: int, end_ns: int) -> None:
        """Record a named region of the program that has ended."""
        try:
            if name not in self._regions and len(self._regions) >= MOST_REGIONS:
                name = OTHERS
            is_new = name not in self._regions
            number = self._regions.setdefault(name, len(self._regions) + 1)
            self.put((ident(), REGION, begin_ns, end_ns, number))
            self.flush()
            if is_new:
                self.fact("region", {"id": number, "name": name})
        except Exception as error:
            self.problem("region", error)

    def after_step(self, now: int) -> None:
        """Do the deferred work once the step's event has been put, when it costs least."""
        if now - self.flushed > FLUSH_NS:
            self.flush()
        # Not only after this flush: short epochs flush when they begin.
        if now >= self.next_tick and self.event_writer is not None:
            self.next_tick = now + min(max(TICK_NS, (now - self._begun) // 100), SLOWEST_TICK_NS)
            self.tick()
        self.attend = self._next_attention()

    def _next_attention(self) -> int:
        each_step = self.on_step or self.window_open or self._window_just_closed or self.own_steps
        mark = self.mark
        if each_step or (mark is not None and (mark.on or mark.behind)):
            return 0
        due = min(self.flushed + FLUSH_NS, self.fetch_due)
        if mark is not None:
            due = min(due, mark.due)
        return due if self.windows is None else min(due, self.windows.due)

    def tick(self) -> None:
        """Refresh the rare facts, and check whether the recorder is still there."""
        event_writer = self.event_writer
        if event_writer is None:
            return
        begin = clock()
        self._call(self.on_tick)
        self.abandoned = is_abandoned(self.settings)
        if self.windows is not None:
            event_writer.windows_ns = int(self.windows.cost * 1e9)
        self.account(begin)
        event_writer.publish()

    def account(self, begin: int) -> None:
        """Count the time since `begin` (ns) as the agent's cost: its rare and expensive work."""
        if self.event_writer is not None:
            self.event_writer.measured_ns += clock() - begin

    # ---- ends ----

    def after_fork(self) -> None:
        """Reset the state in a forked child, whose first event opens its own event writer."""
        windows = self.windows
        # Facts the parent has written are in the parent's file.
        for container in (self._events, self._unreported, self._regions, self.capturing):
            container.clear()
        for threads in (self.in_backward, self.in_forward, self.in_save):
            threads.clear()
        self._turn[:] = [None]
        self.event_writer = self.windows = self.mark = None
        self.window_open = self._window_just_closed = False
        self.flushed = self.attend = self.steps = 0
        if windows is not None:
            windows.after_fork()

    def stop(self) -> None:
        """Remove every hook and close the event writer."""
        for source, undo in reversed(self.uninstall):
            try:
                undo()
            except Exception as error:
                self.fact("problem", {"source": source, "message": f"could not be removed: {error}"})
        self.uninstall.clear()
        self.finish()
        self.attend = sys.maxsize  # a hook whose call is in progress, such as a fetch, does nothing more
        if self._finalizer is not None:
            self._finalizer.cancel()

    def finish(self) -> None:
        """Write the last events and facts at exit; never raise, because the user would see the error."""
        event_writer = None
        try:
            if self.mark is not None:
                self.mark.end()
            self.flush()
            self._muted = True
            event_writer = self.event_writer
            if event_writer is None or event_writer.pid != posix.getpid():
                return
            if self.windows is not None:
                self.windows.close()
            self.tick()
            event_writer.fact("end", {"failed": self.failed})
        except Exception as error:
            self.problem("exit", error)
        finally:
            self.event_writer = None


ident = threading.get_ident
