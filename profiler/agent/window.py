"""Short torch.profiler windows inside the training process, within a share of its run time.

A window records a few whole steps and is saved to a file by the C++ side of torch.profiler; nothing is parsed here.
It is opened and closed at step boundaries, in the training thread, because the profiler records the thread it was
started in. The calls below `torch.autograd.profiler.profile` are used: in older versions of torch leaving that context
manager builds a Python object per event, and it is what a program's own profiler is made of, which we watch for.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import threading
import time
import weakref
from collections import deque
from typing import Any, Callable  # noqa: UP035  the agent also runs on Python 3.9

MARK = "profile-train step"
"""Name of the instant we put into the trace at each step boundary; the recorder cuts the steps there."""

STEPS = 3
MOST_STEPS = 50
LEAST_SECONDS = 0.005  # shorter than this, the clock and the profiler's own jitter show
MOST_SECONDS = 5.0  # a busy host makes up to 100,000 events a second: half a million, 150 MB of JSON
MOST_EVENTS = 150_000  # stopping costs 5 us an event (measured), so less than a second
BYTES_PER_EVENT = 250  # of Kineto's JSON (CPU traces 150 to 250, CUDA 250 to 400)

# The GPU runs behind the host: as a window opens it is at work on kernels launched before, which the profiler does not
# see. So the first of these steps only leads in, and the recorder leaves it out.
LEAD_IN = {"cpu": 0, "cuda": 1}

# What the first window may cost, before one was measured: the profiler's own start-up, which on CUDA loads CUPTI, and
# so many times the step for each step recorded. The worst seen was 8, on 4,800 tiny operators a step on a busy CPU; a
# GPU's operators are fewer for the time they take. Where the budget does not cover that, the first window is as short
# as can be; the later ones go by its cost.
FIRST_COST = {"cpu": 0.020, "cuda": 0.400}
FIRST_SLOWER = {"cpu": 8.0, "cuda": 2.0}

# Every second window also records the shapes of what operators are given. A step of it costs 2.3 to 2.6 times as much
# (measured: stopping and saving; an event while recording 1.8 times), and launching is slower: other windows tell of
# time, and one step is enough for shapes.
SHAPES_SLOWER = 3.0

HALF = 10  # steps; "settled" is a median of 10 steps that moves less than 3 % from the 10 before
SETTLED = 0.03
UNSETTLED_AFTER = 100  # steps after which a loop that never settles is looked at all the same
SPREAD = 1.5  # each window waits for 1.5 times the run time at the last: about 20 windows in 10 hours, and on disk

# At a window's end the GPU is behind by a few steps at most. Asked every so many seconds, it is waited for no longer
# than that and this.
POLL, LEAST_WAIT = 0.0002, 1.0

NEVER = 2**63


class Windows:
    """Decides when a window opens and closes, and what all of them have cost."""

    def __init__(
        self,
        torch: Any,
        folder: str,
        budget: float,
        clock: Callable[[], int],
        report: Callable[[str, dict[str, Any]], None],
    ) -> None:
        self.cost = 0.0
        """Seconds the windows have cost the program so far: starting, stopping, saving, and slower steps meanwhile."""
        self.program_profiler = False
        """The program uses a profiler of its own."""
        self._torch = torch
        self._folder = folder
        self._budget = budget
        self._clock = clock
        self._report = report
        self._born = clock()
        self._ends: deque[int] = deque(maxlen=2 * HALF + 1)
        self._steps = 0
        self._window: _Window | None = None
        self._out = budget <= 0
        self._due = NEVER if self._out else 0
        self._count = 0
        self._events_per_step = 0.0
        self._cost_per_step: dict[bool, float] = {}
        """Of the last window, without and with shapes."""
        self._watched: list[tuple[Any, Any, Any]] = []
        for name in ("profile", "emit_nvtx", "emit_itt"):
            self._watch(getattr(torch.autograd.profiler, name))
        self._watch(torch.profiler.profile)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=_weakly(self._after_fork))

    @property
    def due(self) -> int:
        """The clock before which `at_step_boundary` has nothing to do and need not be called."""
        return self._due

    def at_step_boundary(self, now_ns: int, steps: int = 1) -> bool:
        """Call at the end of each step, in the thread that trains, with the clock at that end.

        Steps may be left out until `due`; `steps` is how many have ended since the last call.

        True while a window is open: the step that begins here is then not a steady one. Nor is the step after a window,
        which bears its saving.
        """
        self._steps += steps
        if steps > 1:
            self._ends.clear()
        self._ends.append(now_ns)
        if now_ns < self._due:
            return False
        try:
            self._attend(now_ns)
        except Exception as error:
            self._retire(_told(error))
        return self._window is not None

    def at_fetch(self, now_ns: int) -> None:
        """Call when the program asks for a batch, in an evaluation too.

        Ends a window in whose step something long has begun: it would record all of it, until memory is full.
        """
        window = self._window
        if window is not None and now_ns > window.deadline and window.is_here():
            self._stop(window)

    def close(self) -> None:
        """Call as the program ends: a window still open keeps the whole steps it has seen."""
        window = self._window
        if window is not None and window.is_here():
            self._stop(window)
        self._out, self._due = True, NEVER
        self._unwatch()

    # ---- deciding ----

    def _attend(self, now: int) -> None:
        window = self._window
        if window is not None:
            if not window.is_here():
                return
            window.mark(now)
            if self._out:
                self._end(window.abandon())
            elif window.steps >= window.planned and not self._capturing(window.device):
                if window.finish():
                    self._save(window)
                else:
                    self._end(window.abandon())
            return
        if len(self._ends) <= 2 * HALF:
            return
        device = "cuda" if self._torch.cuda.is_initialized() else "cpu"
        ends = list(self._ends)
        durations = [(ends[i] - ends[i - 1]) / 1e9 for i in range(1, len(ends))]
        step = max(median(durations), 1e-9)
        if not self._settled(durations) or self._capturing(device) or self._profiled():
            self._due = now + int(HALF * step * 1e9)
            return
        shapes = self._count % 2 == 1
        steps = self._plan(step, 1 if shapes else STEPS, LEAD_IN[device])
        if not self._cost_per_step and now < self._affordable(device, steps, step):
            steps = self._plan(step, 1, LEAD_IN[device])
        if steps <= LEAD_IN[device]:
            self._retire(f"steps of {step:.1f} s make more events than a window may hold.")
            return
        self._due = self._affordable(device, steps, step, shapes)
        if now < self._due:
            return
        self._window = _Window(self._torch, device, steps, self._clock, self._steps, step, shapes)
        self._due = 0

    def _affordable(self, device: str, steps: int, step: float, shapes: bool = False) -> int:
        """The clock from which on the budget covers one more window, of so many steps of `step` seconds."""
        if not self._cost_per_step:
            predicted = FIRST_COST[device] + steps * step * FIRST_SLOWER[device]
        elif shapes not in self._cost_per_step:
            predicted = steps * self._cost_per_step[not shapes] * SHAPES_SLOWER
        else:
            predicted = steps * self._cost_per_step[shapes]
        return self._born + int((self.cost + predicted) / self._budget * 1e9)

    def _settled(self, durations: list[float]) -> bool:
        before, after = median(durations[:HALF]), median(durations[HALF:])
        return abs(after - before) < SETTLED * before or self._steps >= UNSETTLED_AFTER

    def _plan(self, step: float, least: int, lead_in: int) -> int:
        """How many steps of `step` seconds to record, those that lead in among them; 0 if one is too many."""
        wanted = min(MOST_STEPS, max(least, math.ceil(LEAST_SECONDS / step)) + lead_in)
        most = min(MOST_SECONDS / step, MOST_EVENTS / max(self._events_per_step, 1.0))
        return min(wanted, int(most))

    def _capturing(self, device: str) -> bool:
        return device == "cuda" and bool(self._torch.cuda.is_current_stream_capturing())

    def _profiled(self) -> bool:
        """Another profiler is recording, which the program has made before we watched or otherwise than we watch for. A
        second one would silently end it."""
        profiler = self._torch.autograd.profiler
        recording = self._torch._C._autograd._profiler_enabled() or getattr(profiler, "_is_profiler_enabled", False)
        self.program_profiler = self.program_profiler or bool(recording)
        return bool(recording)

    # ---- ending ----

    def _stop(self, window: _Window) -> None:
        """End a window before its time, in the middle of a step."""
        try:
            # To wait for the GPU here could be to wait for ever, if the program ends because a collective hangs.
            if window.steps > LEAD_IN[window.device] and window.is_idle():
                self._save(window)
            else:
                self._end(window.abandon())
        except Exception as error:
            self._retire(_told(error))

    def _save(self, window: _Window) -> None:
        path = os.path.join(self._folder, f"window-{os.getpid()}-{self._count}.json")
        cost = window.save(path)
        self._end(cost)
        self._count += 1
        self._cost_per_step[window.shapes] = cost / window.steps
        if not window.shapes:
            self._events_per_step = os.path.getsize(path) / BYTES_PER_EVENT / window.steps
        self._report(
            "window",
            {
                "path": path,
                "start_ns": window.marks[0],
                "end_ns": window.marks[-1],
                "first_step": window.first_step,
                "steps": window.steps,
                "cost_s": cost,
                "device": window.device,
            },
        )

    def _end(self, cost: float) -> None:
        self._window = None
        self.cost += cost
        self._ends.clear()  # the steps of a window and the one that bears its saving are no measure of the others
        self._due = NEVER if self._out else self._born + int((self._clock() - self._born) * SPREAD)

    def _retire(self, reason: str) -> None:
        """No more windows in this process; the program goes on."""
        window, self._window = self._window, None
        self._out, self._due = True, NEVER
        with contextlib.suppress(Exception):  # it may be what failed
            if window is not None:
                window.abandon()
        with contextlib.suppress(Exception):
            self._report("problem", {"source": "windows", "message": f"No more profiler windows were taken: {reason}"})

    # ---- giving way ----

    def _watch(self, profiler: Any) -> None:
        """Have `profiler`'s constructor tell us that the program makes one. Our windows construct none."""
        original = profiler.__init__

        @functools.wraps(original)
        def init(instance: Any, *args: Any, **kwargs: Any) -> None:
            original(instance, *args, **kwargs)
            if getattr(instance, "enabled", True):
                self._give_way()

        profiler.__init__ = init
        self._watched.append((profiler, init, original))

    def _unwatch(self) -> None:
        for profiler, init, original in self._watched:
            if profiler.__init__ is init:
                profiler.__init__ = original
        self._watched.clear()

    def _give_way(self) -> None:
        """The program makes a profiler: end our window before it can start, and open none again."""
        self._out, self.program_profiler = True, True
        self._due = NEVER if self._window is None else 0
        try:
            if self._watched:
                self._unwatch()
                self._report("flags_profiler", {"program_profiler": True})
            # A window of another thread can only be ended there: at its next step boundary.
            if self._window is not None and self._window.is_here():
                self._end(self._window.abandon())
        except Exception as error:
            self._retire(_told(error))

    def _after_fork(self) -> None:
        """In a child, a DataLoader worker mostly: no windows, and an end to what the copied one records."""
        window, self._window = self._window, None
        self._out, self._due = True, NEVER
        if window is not None:
            window.silence()


def _weakly(method: Callable[[], None]) -> Callable[[], None]:
    """What is called after a fork cannot be taken back, and would keep every `Windows` there has been."""
    reference = weakref.WeakMethod(method)

    def call() -> None:
        alive = reference()
        if alive is not None:
            alive()

    return call


class _Window:
    """One recording, from its first mark to its last."""

    def __init__(
        self,
        torch: Any,
        device: str,
        planned: int,
        clock: Callable[[], int],
        first_step: int,
        step: float,
        shapes: bool,
    ) -> None:
        began = clock()
        self._torch = torch
        self._clock = clock
        self._usual = step
        self._thread = threading.get_ident()
        self.device = device
        self.planned = planned
        """Steps to record at least."""
        self.first_step = first_step
        """Position of its first step among all steps, from 0."""
        self.shapes = shapes
        autograd = torch.autograd
        activities = {autograd.ProfilerActivity.CPU}
        if device == "cuda":
            activities.add(autograd.ProfilerActivity.CUDA)
        missing = activities - autograd._supported_activities()
        if missing:
            raise RuntimeError(f"this torch cannot record {', '.join(str(each) for each in missing)}")
        # Memory, stacks, FLOPs and modules are all off: each costs more than the rest together.
        config = autograd.ProfilerConfig(
            autograd.ProfilerState.KINETO, shapes, False, False, False, False, torch._C._profiler._ExperimentalConfig()
        )
        autograd._prepare_profiler(config, activities)
        autograd._enable_profiler(config, activities)
        self.marks: list[int] = []
        """The clock at each step boundary recorded."""
        self.mark(clock())
        self.deadline = self.marks[0] + int(2 * MOST_SECONDS * 1e9)
        """The clock after which it must not go on."""
        self._opening = self.marks[0] - began

    @property
    def steps(self) -> int:
        """Whole steps recorded so far."""
        return len(self.marks) - 1

    def mark(self, now: int) -> None:
        """Put a step boundary into the trace."""
        self.marks.append(now)
        # Not record_function: that is an operator, which the program's own dispatch modes would see.
        with self._torch._C._profiler._RecordFunctionFast(MARK):
            pass

    def is_here(self) -> bool:
        """Whether this is the thread it records, the only one that can end it."""
        return self._thread == threading.get_ident()

    def is_idle(self) -> bool:
        """Whether the GPU has nothing left to do on this thread's stream."""
        return self.device == "cpu" or bool(self._torch.cuda.current_stream().query())

    def finish(self) -> bool:
        """Let the GPU end what is queued, which would be missing otherwise; False if that does not come to an end, as
        where it waits for what another rank sends, and that rank for us."""
        if self.is_idle():
            return True
        began = now = self._clock()
        patience = began + int((LEAST_WAIT + self.steps * self._usual) * 1e9)
        while not self.is_idle() and now <= patience:
            time.sleep(POLL)
            now = self._clock()
        self._opening += now - began
        return now <= patience

    def save(self, path: str) -> float:
        """End the recording and write it. Seconds it has cost, the slower steps and a slow file server included."""
        began = self._clock()
        # Where this fails we are told; Kineto would tell the program's stderr. It writes into the second and puts that
        # in the place of the first: both exist already, so that nobody else can ever read them.
        for each in (path, path + ".tmp"):
            os.close(os.open(each, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        self._torch.autograd._disable_profiler().save(path)
        with contextlib.suppress(OSError):  # a Kineto that has no use for it
            os.unlink(path + ".tmp")
        slower = (self.marks[-1] - self.marks[0]) / 1e9 - self.steps * self._usual
        return (self._opening + self._clock() - began) / 1e9 + max(0.0, slower)

    def abandon(self) -> float:
        """End the recording and forget it. Seconds starting and ending have cost."""
        began = self._clock()
        self._torch.autograd._disable_profiler()
        return (self._opening + self._clock() - began) / 1e9

    def silence(self) -> None:
        """Stop recording in a forked child, without the profiler's own end: that might touch the parent's GPU."""
        self._torch._C._autograd._enable_record_function(False)


def median(values: list[float]) -> float:
    """Of at least one. Not from `statistics`: where torch has not imported that, a script of this name may be found."""
    ordered = sorted(values)
    half = len(ordered) // 2
    return (ordered[half] + ordered[~half]) / 2


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
