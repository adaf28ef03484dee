"""GPU time without synchronization, from CUDA events at step boundaries that are read later.

`query()` shows whether an event has completed. The time between two neighboring events of a device is the time that
passed on its stream between the two boundaries, idle time included. The segments therefore partition the step as that
GPU saw it, and a wait for data that was hidden behind queued kernels is not counted.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from .. import look
from ..event_writer import clock
from ..ring import (
    GPU,
    MARK_ALL_REACHED,
    MARK_BACKWARD_END,
    MARK_BACKWARD_START,
    MARK_FIRST,
    MARK_OPTIMIZER_END,
    MARK_STEP,
)
from ..session import Agent, ident

# An event costs 5 to 10 us to record and read. Marks that cost more than this share of the run time pause.
SHARE = 0.01
# Boundaries to mark before a pause: enough for one whole step of two optimizers that alternate.
BURST = 3
# During a pause, the end of a step is marked this often, and the end of every step while the GPU is a step behind: the
# host then runs ahead, so its own times mean nothing, and it has time for a mark.
PROBE_NS = 20_000_000
# Interval for judging the cost of marks while they do not pause, and for checking for CUDA before it is initialized.
PACE_NS, LOOK_NS = 1_000_000_000, 100_000_000
# Marks without a boundary, as in an evaluation, are read when MOST_UNREAD wait, and pause (until a step ends) after
# MOST_UNBOUNDED.
MOST_UNREAD = 64
MOST_UNBOUNDED = 256
# More than this many unread events means the GPU is far behind or lost: start again.
MOST_PENDING = 1024

_BOUNDARIES = frozenset((MARK_OPTIMIZER_END, MARK_STEP))
_FORGETTING = _BOUNDARIES | {MARK_BACKWARD_END}


class SeveralGpus(Exception):
    """Training on several GPUs, so that no single GPU sees all phases of a step."""

    def __init__(self, what: str, devices: set[int]) -> None:
        super().__init__(what + ", ".join(f"cuda:{device}" for device in sorted(devices)))
        self.devices = devices


class Marks:
    """The CUDA events of one process.

    Call it at each boundary with its code (ring.MARK_*); at the start of a forward pass also with the module.
    """

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._cuda = agent.torch.cuda
        self._has_context = getattr(agent.torch._C, "_cuda_hasPrimaryContext", lambda device: True)
        self._free: dict[int, list[Any]] = {}
        """Reusable events, by device: an event belongs to the device on which it was first recorded."""
        self._pending: deque[tuple[int, int, int, Any, int]] = deque()
        """Unread events: code, host ns, device, event, and the number of the gapless stretch it belongs to."""
        self._before: dict[int, tuple[Any, int, bool]] = {}
        """The last event read, its stretch and whether it is a boundary, by device."""
        self._roots = look.ByIdentity()
        """The GPU of each root module that was called; None for a module on the host."""
        self._to_train: set[int] = set()
        """The GPUs of forward passes with gradients since the last backward pass or boundary."""
        self.device: int | None = None
        """The GPU of the last model called, the highest of several; None if it lies on the host or none was called."""
        self._live = self._is_used = False
        self._is_split = False
        """Whether training uses several GPUs; then only the ends of steps are marked, on one of them."""
        self.on = True
        self.due = 0
        """While not `on`: the clock time (ns) from which the next boundary resumes the marks."""
        self.behind = False
        """While not `on`: whether the GPU may be a step behind, so that each step's end is marked."""
        self._last: tuple[int, Any, int] | None = None
        """Device, stream and ns of the last mark."""
        self._stretch = 0
        self._since = 0
        self._spent = self._ends = self._unbounded = 0
        """Ns spent here and boundaries marked since `_since`, and marks since the last boundary."""

    def __call__(self, code: int, module: Any = None) -> None:
        """Record an event at a boundary; never raise: an error ends the marks."""
        # Hooks continue to call after the marks have ended, here or in a forked child.
        if self._agent.mark is not self:
            return
        try:
            if code in _BOUNDARIES or (self.on and not self._is_split):
                self._attend(code, module)
            elif module is not None and self._live and not self._is_split and self._roots.get(module, self) is self:
                # Another model: what is known of the steps before the pause does not apply to its steps.
                self._device_of(module)
                self.due = self._agent.attend = 0
        except SeveralGpus as error:
            self._is_split = True
            self.device = max(error.devices)
            self._stretch += 1
            self._agent.problem("cuda_events", error)
        except Exception as error:
            self._agent.mark, self.on = None, False
            self._agent.give_up("cuda_events", error)

    def _attend(self, code: int, module: Any) -> None:
        begin = clock()
        if not self.on and begin >= self.due:
            self._start(begin)
        if not (self.on or self._is_probed(code, begin)):
            return
        if not self._live:
            self._live = self._cuda.is_initialized()  # only the program may initialize CUDA
            if not self._live:
                if code in _BOUNDARIES:
                    self.on, self.due = False, begin + LOOK_NS
                return
            self._start(begin)
        device = None if self._agent.is_capturing() else self._training_device(code, module)
        if device is None:
            self._stretch += 1
            return
        if not self._is_used:
            self._is_used = True
            self._agent.put((ident(), GPU, begin, begin, MARK_FIRST, -1, -1))
        free_events = self._free.get(device)
        event = free_events.pop() if free_events else self._cuda.Event(enable_timing=True)
        stream = self._cuda.current_stream(device)
        event.record(stream)
        self._last = device, stream, begin
        self._pending.append((code, clock(), device, event, self._stretch))
        self._unbounded += 1
        if code in _BOUNDARIES:
            self._ends += 1
            self._unbounded = 0
            self._read()
        elif len(self._pending) >= MOST_UNREAD:
            self._read()
        if not self.on:
            return
        end = clock()
        self._spent += end - begin
        if code in _BOUNDARIES or self._unbounded >= MOST_UNBOUNDED:
            self._pace(end)

    # ---- how many ----

    def _start(self, now: int) -> None:
        self.on = True
        self._stretch += 1
        self._to_train.clear()
        self._since, self._spent, self._ends, self._unbounded = now, 0, 0, 0

    def _pace(self, now: int) -> None:
        """Pause long enough to bring the cost of the marks since the last pause down to SHARE of the time."""
        if self._spent > SHARE * (now - self._since):
            if self._ends >= BURST or self._unbounded >= MOST_UNBOUNDED:
                self.on, self.due, self.behind = False, self._since + int(self._spent / SHARE), True
        elif now - self._since > PACE_NS:
            self._since, self._spent = now, 0

    def _is_probed(self, code: int, now: int) -> bool:
        """Return whether this boundary is marked in a pause; its time then counts from the previous mark."""
        if self._last is None or (self._agent.own_steps and code != MARK_STEP):
            return False
        if len(self._before) > 1 and not self._is_split:  # alternating models: in a pause it is unknown whose step ends
            return False
        if not (self.behind or now >= self._last[2] + PROBE_NS) or self._agent.is_capturing():
            return False
        self._read()
        self.behind = bool(self._pending)
        self._stretch += 1
        return True

    # ---- where ----

    def _training_device(self, code: int, module: Any) -> int | None:
        """Return the device of the current or last forward pass; never one without a CUDA context.

        Raises:
            SeveralGpus: a model lies on several GPUs, or one backward pass trains models on several.
        """
        if module is not None:
            self.device = self._device_of(module)
            if self.device is not None and self._agent.torch.is_grad_enabled():
                self._to_train.add(self.device)
        elif code == MARK_BACKWARD_START and len(self._to_train) > 1:
            raise SeveralGpus("one backward pass trains models on ", self._to_train)
        elif code in _FORGETTING:
            self._to_train.clear()
        if self.device is not None:
            return self.device
        device: int = self._cuda.current_device()
        return device if self._has_context(device) else None

    def _device_of(self, module: Any) -> int | None:
        """Return the GPU that holds the module's parameters and buffers; None if they lie on the host.

        Raises:
            SeveralGpus: they lie on more than one GPU.
        """
        known_device: int | None = self._roots.get(module)
        if known_device is not None:
            return known_device
        devices = gpus_of(self._agent.torch, module)
        if len(devices) > 1:
            raise SeveralGpus("the model lies on ", devices)
        device = next(iter(devices), None)
        self._roots.put(module, device)
        return device

    # ---- reading ----

    def end(self) -> None:
        """Read the marks that the GPU has reached, and record if those are all; never wait, and never raise."""
        try:
            if not self._is_used or self._agent.mark is not self or self._agent.is_capturing():
                return
            self._read()
            if not self._pending and (self.on or self._is_done()):
                now = clock()
                self._agent.put((ident(), GPU, now, now, MARK_ALL_REACHED, -1, -1))
        except Exception:  # possibly the GPU is lost: what it has reached is unknown
            return

    def _is_done(self) -> bool:
        """Return whether the stream of the last mark has nothing left to do."""
        if self._last is None:
            return False
        device, last_stream, _ = self._last
        stream = self._cuda.current_stream(device)
        return bool(stream == last_stream and stream.query())

    def _read(self) -> None:
        pending = self._pending
        thread = ident()
        put = self._agent.put
        while pending and pending[0][3].query():
            code, host_ns, device, event, stretch = pending.popleft()
            previous = self._before.get(device)
            is_boundary = code in _BOUNDARIES
            elapsed_ns, gap_ns = -1, 0
            if previous is not None:
                if previous[1] == stretch:
                    elapsed_ns = int(previous[0].elapsed_time(event) * 1e6)
                elif is_boundary and previous[2]:
                    gap_ns = int(previous[0].elapsed_time(event) * 1e6)
                self._free.setdefault(device, []).append(previous[0])
            put((thread, GPU, host_ns, host_ns, code, elapsed_ns, device, gap_ns))
            self._before[device] = event, stretch, is_boundary
        if len(pending) > MOST_PENDING:
            for _, _, device, event, _ in pending:
                self._free.setdefault(device, []).append(event)
            pending.clear()
            self._stretch += 1


def gpus_of(torch: Any, module: Any) -> set[int]:
    """Return the indexes of the GPUs that hold `module`'s parameters.

    If no parameter lies on a GPU, return those that hold its buffers.
    """
    return _gpus(torch, look.parameters(module)) or _gpus(torch, look.parameters(module, "_buffers"))


def _gpus(torch: Any, tensors: list[Any]) -> set[int]:
    device_of = torch.Tensor.device.__get__
    with torch._C.DisableTorchFunction():
        devices = [device_of(tensor) for tensor in tensors if look.is_a(tensor, torch.Tensor)]
    return {device.index for device in devices if device.type == "cuda"}
