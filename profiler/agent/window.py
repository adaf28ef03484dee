"""Short torch.profiler windows inside the training process, limited to a share of its run time.

A window records a few whole steps, and the C++ side of torch.profiler saves it to a file; nothing is parsed here.
Windows open and close at step boundaries, in the training thread, because the profiler records the thread it was
started in. They use the calls below `torch.autograd.profiler.profile`: in older versions of torch, leaving that context
manager builds a Python object per event. Programs' own profilers use that context manager, too, and the agent watches
for those.
"""

from __future__ import annotations

import contextlib
import math
import os
import posix
import threading
import time
from collections import deque
from typing import Any, Callable  # noqa: UP035  the agent also runs on Python 3.9

from .event_writer import clock
from .kineto import kept_subscribed, quiet
from .observe import observe
from .session import Agent

MARK = "profile-train step"
"""Name of the instant that marks each step boundary in the trace; the recorder separates steps there."""

STEPS = 3
MOST_STEPS = 50
LEAST_SECONDS = 0.005  # in a shorter window, jitter of the clock and of the profiler shows
MOST_SECONDS = 5.0  # a busy host makes up to 100,000 events a second: half a million, 150 MB of JSON
MOST_EVENTS = 150_000  # stopping costs 5 us an event (measured), so less than a second
BYTES_PER_EVENT = 250  # of Kineto's JSON (CPU traces 150 to 250, CUDA 250 to 400)

# Lead-in steps, which the recorder leaves out. The GPU runs behind the host: when a window opens, it is still executing
# kernels launched earlier, which the profiler does not see.
LEAD_IN = {"cpu": 0, "cuda": 1}

# Seconds. If steps are longer than LONG, a lead-in step would cost too much: a window opens once the GPU is idle, and
# the first one records a single step. For steps longer than PARTIAL, a part is enough: up to the first batch fetched
# after RECORD.
LONG, PARTIAL, RECORD = 0.5, 2.0, 1.5
MOST_LONG = 12.0

# On CUDA, the first window may cost this many seconds regardless of the budget, not counting the start of CUPTI:
# without kernels, most GPU advice has no data. It waits for the loop to settle until PATIENT_STEPS or PATIENT_SECONDS
# have passed.
ALLOWANCE = 2.0
PATIENT_STEPS, PATIENT_SECONDS = 40, 10.0
# A run of ten long steps never has the 20 steps that settling takes: after PATIENT_SECONDS, FEW steps are enough if the
# longest takes at most ALIKE times as long as the shortest.
FEW, ALIKE = 4, 1.5

# Least free GPU memory for a window, bytes: CUPTI takes some hundred MB when the first window opens (assumption: half
# of this).
LEAST_FREE = 1 << 30

# CUDA graphs and CUPTI: profiling a replay may hang before CUDA 12 (pytorch issue 75504), and the times of kernels in
# graphs are wrong before CUDA 13.1 (kineto issue 1165).
GRAPHS_MAY_HANG, GRAPH_TIMES_WRONG = (12, 0), (13, 1)

# Assumed cost of the first window: profiler start-up in seconds, which on CUDA loads CUPTI, plus this multiple of the
# step time per recorded step. The worst multiple seen was 8, on 4,800 tiny operators per step on a busy CPU; a GPU runs
# fewer operators in the same time. If the budget does not cover that cost, the first window is as short as possible.
# Later windows use its measured cost.
FIRST_COST = {"cpu": 0.020, "cuda": 0.400}
FIRST_SLOWER = {"cpu": 8.0, "cuda": 2.0}

# Every second window also records the shapes of operator inputs. A step of such a window costs 2.3 to 2.6 times as much
# (measured: stopping and saving; an event while recording 1.8 times), and launching is slower: times come from the
# other windows, and one step is enough for shapes.
SHAPES_SLOWER = 3.0

HALF = 10  # steps; "settled" means that the medians of 10 steps and of the 10 before differ by less than 3 %
SETTLED = 0.03
UNSETTLED_AFTER = 100  # steps after which a loop that never settles is recorded anyway
SPREAD = 1.5  # a window waits for 1.5 times the run time at the end of the last: about 20 windows and files in 10 h

# At a window's end, the GPU is at most a few steps behind. It is polled every POLL seconds, for at most the usual time
# of the window's steps plus LEAST_WAIT seconds.
POLL, LEAST_WAIT = 0.0002, 1.0

NEVER = 2**63


class Windows:
    """The windows of one process: when each opens and closes, and their total cost."""

    def __init__(self, agent: Agent, may_read_shapes: Callable[[], bool]) -> None:
        """Prepare to record windows.

        `may_read_shapes()` returns whether torch knows the shapes of all parameters without calling code of the
        program.
        """
        self.reason: str | None = "too_few_steps"
        """Why there are no windows, or no more: see schema.WindowsFact. None if nothing prevents one."""
        self._agent = agent
        self._may_read_shapes = may_read_shapes
        self._granted = 0.0
        """Seconds of `cost` not charged to the budget: the start of CUPTI and the first window."""
        self.cost = 0.0
        """Seconds the windows have cost the program so far.

        That is starting, stopping, saving, and slower steps meanwhile.
        """
        self.program_profiler = False
        """Whether the program uses its own profiler."""
        self._torch = torch = agent.torch
        self._folder: str = agent.settings["windows"]
        self._budget: float = agent.settings["budget"]
        self._born = clock()
        self._ends: deque[int] = deque(maxlen=2 * HALF + 1)
        self._steps = 0
        self._window: _Window | None = None
        self._out = self._budget <= 0
        if self._out:
            self.reason = "off"
        self.due = NEVER if self._out else 0
        """The clock time (ns) before which `at_step_boundary` has nothing to do and need not be called."""
        self._count = 0
        self._events_per_step = 0.0
        self._cost_per_step: dict[bool, float] = {}
        """Seconds per step of the last window without shapes (False) and with shapes (True)."""
        for name in ("profile", "emit_nvtx", "emit_itt"):
            self._watch(getattr(torch.autograd.profiler, name))
        self._watch(torch.profiler.profile)

    def at_step_boundary(self, now_ns: int, steps: int) -> bool:
        """Open, advance or close a window at the end of a step; return whether one is open.

        Call it in the thread that trains, with the clock time at the end of the step and the number of steps so far.
        Calls may be omitted until `due`.

        While a window is open, the step that begins here is not a steady one. Neither is the step after a window, which
        includes its saving.
        """
        if steps > self._steps + 1:
            self._ends.clear()
        self._steps = steps
        self._ends.append(now_ns)
        if now_ns < self.due:
            return False
        try:
            self._attend(now_ns)
        except Exception as error:
            self._retire(error)
        return self._window is not None

    def at_fetch(self, now_ns: int) -> None:
        """End the window at a fetch if it is overdue or has recorded enough.

        Fetches of an evaluation count, too: a window whose step has turned into something long would otherwise record
        all of it, until memory is full.
        """
        window = self._window
        if window is None or not window.is_here():
            return
        if now_ns > window.deadline:
            self._stop(window)
        elif window.may_end(now_ns) and not self._agent.is_capturing():
            try:
                window.share = window.recorded(now_ns)
                self._finish(window, now_ns)
            except Exception as error:
                self._retire(error)

    @property
    def state(self) -> dict[str, Any]:
        """Return the WindowsFact of this process."""
        fixed_in = GRAPH_TIMES_WRONG
        are_wrong = (
            self._count > 0 and self._agent.uses_graphs and _version(self._torch.version.cuda, fixed_in) < fixed_in
        )
        return {"reason": self.reason, "graph_times_wrong": are_wrong}

    def close(self) -> None:
        """End the windows with the program; a window still open keeps the whole steps it has recorded."""
        window = self._window
        if window is not None and window.is_here():
            with kept_subscribed():
                self._stop(window)
        self._out, self.due = True, NEVER
        self._agent.remove("windows")

    # ---- deciding ----

    def _attend(self, now: int) -> None:
        window = self._window
        if window is not None:
            if not window.is_here():
                return
            if self._out:
                self._end(window.abandon())
            elif window.steps + 1 >= window.planned:
                self._finish(window, now)
            else:
                window.mark(now)
            return
        device = "cuda" if self._torch.cuda.is_initialized() else "cpu"
        ends = list(self._ends)
        durations = [(ends[i] - ends[i - 1]) / 1e9 for i in range(1, len(ends))]
        if len(durations) < 2 * HALF:
            if device != "cuda" or self._count or not _few_will_do(durations, now - self._born):
                return
            durations = durations[-FEW:]
        step = max(median(durations), 1e-9)
        if not self._settled(durations, device, now) or self._agent.is_capturing() or self._profiled():
            self.due = now + int(HALF * step * 1e9)
            return
        obstacle = self._obstacle(device)
        if obstacle is not None:
            self.reason = obstacle
            self.due = now + int(HALF * max(step, 0.1) * 1e9)
            return
        shapes = self._count % 2 == 1 and self._may_read_shapes()
        is_long = device == "cuda" and step > LONG
        lead_in = 0 if is_long else LEAD_IN[device]
        steps = self._plan(step, 1 if shapes else STEPS, lead_in)
        if is_long:
            steps = max(steps, 1) if step <= MOST_LONG else 0
        is_first = not self._count
        allowance = ALLOWANCE if device == "cuda" else (now - self._born) / 1e9 * self._budget - FIRST_COST[device]
        if is_first and (is_long or steps * step * FIRST_SLOWER[device] > allowance):
            steps = min(steps, self._plan(step, 1, lead_in) or 1) if steps else 0
        if steps <= lead_in:
            self._retire(f"steps of {step:.1f} s are too long to record.", "steps_too_long")
            return
        self.due = now if is_first and device == "cuda" else self._affordable(device, steps, step, shapes)
        if now < self.due:
            self.reason = "budget"
            return
        wait_ns = 0
        if is_long:
            begin = clock()
            is_drained = _is_drained(self._torch, step)
            wait_ns = clock() - begin
            if not is_drained:
                self._end(wait_ns / 1e9)
                return
        self._window = _Window(self._torch, device, steps, lead_in, self._steps, step, shapes, wait_ns)
        self.due = 0

    def _finish(self, window: _Window, now: int) -> None:
        """End a window that has recorded enough, unless it must wait for the end of a capture."""
        window.mark(now)
        if self._agent.is_capturing():
            return
        if window.finish():
            self._save(window)
        else:
            self._end(window.abandon())

    def _obstacle(self, device: str) -> str | None:
        """Return why no window may open now, apart from budget and time; None if nothing else forbids it."""
        environment = os.environ
        if environment.get("KINETO_USE_DAEMON"):
            return "kineto_daemon"  # our window would end a trace that a daemon has requested
        if device != "cuda":
            return None
        if environment.get("NSYS_PROFILING_SESSION_ID") or environment.get("CUDA_INJECTION64_PATH"):
            return "other_tool"  # CUPTI serves one tool at a time
        if self._agent.uses_graphs and _version(self._torch.version.cuda, GRAPHS_MAY_HANG) < GRAPHS_MAY_HANG:
            return "cuda_graphs"
        index = None if self._agent.mark is None else self._agent.mark.device
        if index is not None and self._torch.cuda.mem_get_info(index)[0] < LEAST_FREE:
            return "memory"
        return None

    def _affordable(self, device: str, steps: int, step: float, shapes: bool) -> int:
        """Return the clock time (ns) from which the budget covers a window of `steps` steps of `step` s."""
        if not self._count:
            predicted_cost = FIRST_COST[device] + steps * step * FIRST_SLOWER[device]
        elif shapes not in self._cost_per_step:
            predicted_cost = steps * self._cost_per_step[not shapes] * SHAPES_SLOWER
        else:
            predicted_cost = steps * self._cost_per_step[shapes]
        return self._born + int((self.cost - self._granted + predicted_cost) / self._budget * 1e9)

    def _settled(self, durations: list[float], device: str, now: int) -> bool:
        if len(durations) <= FEW:
            return True
        before, after = median(durations[:HALF]), median(durations[HALF:])
        if abs(after - before) < SETTLED * before or self._steps >= UNSETTLED_AFTER:
            return True
        is_waiting = self._steps < PATIENT_STEPS and now - self._born < PATIENT_SECONDS * 1e9
        return device == "cuda" and not self._count and not is_waiting

    def _plan(self, step: float, least: int, lead_in: int) -> int:
        """Return how many steps of `step` seconds to record, lead-in included; 0 if even one is too many."""
        steps = min(MOST_STEPS, max(least, math.ceil(LEAST_SECONDS / step)) + lead_in)
        limit = min(MOST_SECONDS / step, MOST_EVENTS / max(self._events_per_step, 1.0))
        return min(steps, int(limit))

    def _profiled(self) -> bool:
        """Return whether another profiler is recording; a window would silently end it.

        This finds profilers that the program made before the watch began or in ways that are not watched.
        """
        profiler = self._torch.autograd.profiler
        is_recording = self._torch._C._autograd._profiler_enabled() or getattr(profiler, "_is_profiler_enabled", False)
        self.program_profiler = self.program_profiler or bool(is_recording)
        if is_recording:
            self.reason = "program_profiler"
        return bool(is_recording)

    # ---- ending ----

    def _stop(self, window: _Window) -> None:
        """End a window early, in the middle of a step."""
        try:
            # Do not wait for the GPU: if the program ends because a collective hangs, that could take forever.
            if window.steps > window.lead_in and window.is_idle():
                self._save(window)
            else:
                self._end(window.abandon())
        except Exception as error:
            self._retire(error)

    def _save(self, window: _Window) -> None:
        path = os.path.join(self._folder, f"window-{posix.getpid()}-{self._count}.json")
        cost = window.save(path)
        opening = 0.0
        if window.device == "cuda" and not self._count:
            opening = window.opening
            self._granted = opening + min(ALLOWANCE, max(0.0, cost - opening))
        self._end(cost)
        self._count += 1
        self.reason = None
        self._cost_per_step[window.shapes] = (cost - opening) / window.steps
        if not window.shapes:
            self._events_per_step = posix.stat(path).st_size / BYTES_PER_EVENT / window.steps
        self._agent.fact(
            "window",
            {
                "path": path,
                "start_ns": window.marks[0],
                "end_ns": window.marks[-1],
                "first_step": window.first_step,
                "steps": window.steps,
                "share": window.share,
                "cost_s": cost,
                "opening_s": opening,
                "device": window.device,
            },
        )

    def _end(self, cost: float) -> None:
        self._window = None
        self.cost += cost
        self._ends.clear()  # the steps of a window and the step that includes its saving are not typical
        self.due = NEVER if self._out else self._born + int((clock() - self._born) * SPREAD)

    def _retire(self, reason: Exception | str, code: str = "failed") -> None:
        """Take no more windows in this process; the program continues."""
        if isinstance(reason, Exception):
            reason = f"{type(reason).__name__}: {reason}"
        window, self._window = self._window, None
        self.reason = code
        self._out, self.due = True, NEVER
        with contextlib.suppress(Exception):  # the window may be what failed
            if window is not None:
                window.abandon()
        with contextlib.suppress(Exception):
            self._agent.fact(
                "problem", {"source": "windows", "message": f"No more profiler windows were taken: {reason}"}
            )

    # ---- giving way ----

    def _watch(self, profiler: Any) -> None:
        """Detect that the program constructs `profiler`; the agent's own windows construct none."""

        def made(instance: Any, result: None, failed: bool) -> None:
            if not failed and getattr(instance, "enabled", True):
                self._give_way()

        observe(self._agent, "windows", "__init__", lambda instance, *_, **__: instance, profiler, after=made)

    def _give_way(self) -> None:
        """End the open window before the program's profiler starts, and never open another."""
        self._out, self.program_profiler, self.reason = True, True, "program_profiler"
        self.due = NEVER if self._window is None else 0
        try:
            self._agent.remove("windows")
            # Only its own thread can end a window. A window of another thread ends at that thread's next step boundary.
            if self._window is not None and self._window.is_here():
                self._end(self._window.abandon())
        except Exception as error:
            self._retire(error)

    def after_fork(self) -> None:
        """Disable windows in a forked child, mostly a DataLoader worker, and silence the copied one."""
        window, self._window = self._window, None
        self._out, self.due = True, NEVER
        if window is not None:
            window.silence()


class _Window:
    """A recording, from its first mark to its last."""

    def __init__(
        self,
        torch: Any,
        device: str,
        planned: int,
        lead_in: int,
        first_step: int,
        step: float,
        shapes: bool,
        waited: int,
    ) -> None:
        """Start the recording; before it, the program waited `waited` ns for the GPU."""
        begin = clock()
        self.lead_in = lead_in
        self.share = 1.0
        """Fraction of a step that was recorded, 0 to 1."""
        self.marks: list[int] = []
        """The clock time (ns) of each recorded step boundary."""
        self._torch = torch
        self._usual = step
        self._thread = threading.get_ident()
        self.device = device
        self.planned = planned
        """The minimum number of steps to record."""
        self.first_step = first_step
        """Position of its first step among all steps, from 0."""
        self.shapes = shapes
        autograd = torch.autograd
        activities = {autograd.ProfilerActivity.CPU}
        if device == "cuda":
            activities.add(autograd.ProfilerActivity.CUDA)
        missing = activities - autograd._supported_activities()
        if missing:
            raise RuntimeError(f"this build of torch cannot record {', '.join(str(activity) for activity in missing)}")
        # Memory, stacks, FLOPs and modules are all off: each one costs more than everything recorded.
        config = autograd.ProfilerConfig(
            autograd.ProfilerState.KINETO, shapes, False, False, False, False, torch._C._profiler._ExperimentalConfig()
        )
        with quiet():
            autograd._prepare_profiler(config, activities)
        with quiet():  # again: the call above makes Kineto read its settings
            autograd._enable_profiler(config, activities)
        self.mark(clock())
        self.opening = (self.marks[0] - begin) / 1e9
        """Seconds the profiler took to start; the first time on CUDA it loads CUPTI."""
        self.deadline = self.marks[0] + int(2 * max(MOST_SECONDS, step) * 1e9)
        """The clock time (ns) after which the window must end."""
        self._spent = self.marks[0] - begin + waited
        """Nanoseconds for starting the profiler and waiting for the GPU."""

    @property
    def steps(self) -> int:
        """Return the number of whole steps recorded so far."""
        return len(self.marks) - 1

    def mark(self, now: int) -> None:
        """Put a step boundary into the trace."""
        self.marks.append(now)
        # Not record_function: that is an operator, which the program's own dispatch modes would see.
        with self._torch._C._profiler._RecordFunctionFast(MARK):
            pass

    def may_end(self, now: int) -> bool:
        """Return whether enough of the window's first step, a long one, is recorded to end it at a fetch."""
        is_partial = self.device == "cuda" and self._usual > PARTIAL and not self.steps
        return is_partial and now - self.marks[0] > RECORD * 1e9

    def recorded(self, now: int) -> float:
        """Return the fraction of a usual step that has passed since the window opened, at most 1."""
        return min(1.0, (now - self.marks[0]) / 1e9 / self._usual)

    def is_here(self) -> bool:
        """Return whether this is the recorded thread, the only one that can end the window."""
        return self._thread == threading.get_ident()

    def is_idle(self) -> bool:
        """Return whether the GPU has nothing left to do on this thread's stream."""
        return self.device == "cpu" or _is_idle(self._torch)

    def finish(self) -> bool:
        """Wait until the GPU has finished its queue, whose work would otherwise be missing.

        Returns False if that does not happen in time: the GPU may be waiting for data from another rank, which in turn
        waits for this one.
        """
        if self.is_idle():
            return True
        begin = clock()
        is_drained = _is_drained(self._torch, self.steps * self._usual)
        self._spent += clock() - begin
        return is_drained

    def save(self, path: str) -> float:
        """End the recording and write it; return its cost in seconds.

        The cost includes slower steps and a slow file server.
        """
        begin = clock()
        # If this fails, it raises an error; Kineto would write to the program's stderr. Kineto writes the second file
        # and replaces the first with it: both exist beforehand, so that nobody else can ever read them.
        for file_path in (path, path + ".tmp"):
            posix.close(posix.open(file_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        with quiet():
            self._torch.autograd._disable_profiler().save(path)
        with contextlib.suppress(OSError):  # only a Kineto version that does not use this file leaves it
            posix.unlink(path + ".tmp")
        slowdown = (self.marks[-1] - self.marks[0]) / 1e9 - self.steps * self.share * self._usual
        return (self._spent + clock() - begin) / 1e9 + max(0.0, slowdown)

    def abandon(self) -> float:
        """End the recording and discard it; return the seconds that starting and ending cost."""
        begin = clock()
        with quiet():
            self._torch.autograd._disable_profiler()
        return (self._spent + clock() - begin) / 1e9

    def silence(self) -> None:
        """Stop recording in a forked child without ending the profiler, which might touch the parent's GPU."""
        self._torch._C._autograd._enable_record_function(False)


def _is_idle(torch: Any) -> bool:
    """Return whether the GPU has nothing left to do on this thread's stream."""
    return bool(torch.cuda.current_stream().query())


def _is_drained(torch: Any, seconds: float) -> bool:
    """Wait until the GPU has finished its queue; return False if that takes longer than LEAST_WAIT plus `seconds`."""
    end = clock() + int((LEAST_WAIT + seconds) * 1e9)
    while not _is_idle(torch):
        if clock() > end:
            return False
        time.sleep(POLL)
    return True


def _few_will_do(durations: list[float], waited: int) -> bool:
    """Return whether the last FEW steps are long and alike, and `waited` nanoseconds are too long to wait for more."""
    tail = durations[-FEW:]
    return len(tail) == FEW and waited >= PATIENT_SECONDS * 1e9 and LONG < max(tail) <= ALIKE * min(tail)


def median(values: list[float]) -> float:
    """Return the median of at least one value.

    `statistics` is not imported: if torch has not imported it, that name may be a script of the program.
    """
    ordered = sorted(values)
    middle = len(ordered) // 2
    return (ordered[middle] + ordered[~middle]) / 2


def _version(text: str | None, unknown: tuple[int, int]) -> tuple[int, int]:
    """Return the major and minor number of torch.version.cuda; `unknown` if there is none, as on ROCm."""
    try:
        major, minor = str(text).split(".")[:2]
        return int(major), int(minor)
    except ValueError:
        return unknown
