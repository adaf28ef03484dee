"""DistributedDataParallel: which passes reduce gradients, and the times that torch itself takes of some of them.

A program without it pays nothing: only the wrapper that a DistributedDataParallel has as a root counts.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

from ..facts import WRAPPERS
from ..session import Agent
from ..stack import place
from ..tracebacks import step_aside

# torch's Reducer times the first ten passes that reduce, then every hundredth (kDDPRuntimeLoggingSampleRate).
FIRST_SAMPLES, SAMPLE_RATE = 10, 100

# Fields of DdpFact, and what torch's logger calls the mean of all samples in ns.
_TIMES = {
    "compute": "avg_backward_compute_time",
    "communication": "avg_backward_comm_time",
    "overlap": "avg_backward_compute_comm_overlap_time",
}


class Ddp:
    """The DistributedDataParallel modules of a program, as far as they are roots."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._class = agent.torch.nn.parallel.DistributedDataParallel
        self._places: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        self._counts: dict[int, _Count] = {}
        """By the root's number."""

    def install(self) -> Callable[[], None]:
        """Remember where each is made; tell of each at every tick."""
        cls, plain, places = self._class, self._class.__init__, self._places

        @wraps(plain)
        def __init__(module: Any, *args: Any, **kwargs: Any) -> None:
            try:
                places[module] = place()
            except Exception:  # a place is a nicety
                pass
            try:
                plain(module, *args, **kwargs)
            except BaseException as error:
                step_aside(error)
                raise

        cls.__init__ = __init__
        self._agent.on_tick.append(self._tell)

        def undo() -> None:
            if cls.__init__ is __init__:
                cls.__init__ = plain
            if self._tell in self._agent.on_tick:
                self._agent.on_tick.remove(self._tell)

        return undo

    def counting(self, root: Any, number: int, before: Any) -> Any:
        """What a root's wrapper calls in place of `before`: one that counts, if it is a DistributedDataParallel."""
        module = next((each for each in _inwards(root) if isinstance(each, self._class)), None)
        if module is None:
            return before
        try:
            count = self._counts.get(number)
            if count is None or count.module() is not module:
                # An optimizer may step in a backward pass, which holds the lock that torch's answer takes.
                logged = {} if self._agent.in_backward else _logged(module)
                count = self._counts[number] = _Count(module, self._agent.steps, self._places.get(module), logged)
        except Exception as error:
            self._agent.give_up("ddp", error)
            return before
        return self._counted(root, module, count.passes, before)

    def _counted(self, root: Any, module: Any, passes: list[int], before: Any) -> Any:
        is_compiling = self._agent.torch.compiler.is_compiling
        grad = self._agent.torch.is_grad_enabled
        outer, inner = weakref.ref(root), weakref.ref(module)

        def call(*args: Any, **kwargs: Any) -> Any:
            this: Any = outer()
            plain = this._call_impl if before is None else before
            if is_compiling():
                return plain(*args, **kwargs)
            if this.training and grad():
                # As DDP does: what counts is how it stands at the forward pass.
                passes[bool(getattr(inner(), "require_backward_grad_sync", True))] += 1
            try:
                return plain(*args, **kwargs)
            except BaseException as error:
                step_aside(error)
                raise

        return call

    def _tell(self) -> None:
        if self._agent.in_backward:  # as in `counting`
            return
        for number, count in list(self._counts.items()):
            if count.module() is None:
                del self._counts[number]
            else:
                self._agent.fact("ddp", count.fact(number, self._agent.steps))


class _Count:
    """Passes of one module since it has been looked at."""

    def __init__(self, module: Any, steps: int, where: Any, logged: dict[str, Any]) -> None:
        self.module = weakref.ref(module)
        self.passes = [0, 0]
        """Without and with reduction."""
        self._steps = steps
        self._place = where
        gradients = [parameter for parameter in module.parameters() if parameter.requires_grad]
        self._bytes = sum(each.numel() * each.element_size() for each in gradients)
        self._dtypes = sorted({str(each.dtype).replace("torch.", "") for each in gradients})
        self._before = _sums(logged)

    def fact(self, number: int, steps: int) -> dict[str, Any]:
        """DdpFact."""
        module = self.module()
        logged = _logged(module)
        sizes = logged.get("rebuilt_bucket_sizes") or logged.get("bucket_sizes")
        hooks = getattr(module, "_comm_hooks", None)
        named = getattr(hooks[0][0], "__qualname__", "?") if hooks else None
        fact = {
            "id": number,
            "place": self._place,
            "backend": logged.get("backend_name"),
            "gradient_bytes": self._bytes,
            "dtypes": self._dtypes,
            "bucket_cap": getattr(module, "bucket_bytes_cap", None),
            "buckets": len(sizes.split(",")) if sizes else None,
            "gradient_as_bucket_view": bool(getattr(module, "gradient_as_bucket_view", False)),
            "find_unused_parameters": bool(getattr(module, "find_unused_parameters", False)),
            "static_graph": bool(getattr(module, "static_graph", False)),
            "comm_hook": logged.get("comm_hook") or named,
            "steps": steps - self._steps,
            "passes": sum(self.passes),
            "reduced": self.passes[True],
        }
        fact.update(self._times(_sums(logged)))
        return fact

    def _times(self, sums: dict[str, int]) -> dict[str, Any]:
        """Means over the samples since the look before, in seconds; nothing where torch took none."""
        samples = sums["samples"] - self._before["samples"]
        if samples <= 0 or not sums["communication"]:
            return {"samples": 0}
        means = {name: max(0, sums[name] - self._before[name]) / samples / 1e9 for name in _TIMES}
        return {"samples": samples, **means}


def _logged(module: Any) -> dict[str, Any]:
    """What torch has logged of it: a copy of some words and numbers. Never in a backward pass: it takes the lock that
    torch holds while a communication hook runs."""
    try:
        return dict(module._get_ddp_logging_data())
    except Exception:  # an interface that torch calls a prototype; and there is no logger with the Python reducer
        return {}


def _sums(logged: dict[str, Any]) -> dict[str, int]:
    """How many passes torch has timed, and their times added up, ns."""
    passes = int(logged.get("iteration", 0))
    samples = min(passes, FIRST_SAMPLES) + max(0, passes // SAMPLE_RATE)
    return {"samples": samples, **{name: samples * int(logged.get(key, 0)) for name, key in _TIMES.items()}}


def _inwards(module: Any) -> Iterator[Any]:
    """A module, and what it wraps."""
    while module is not None:
        yield module
        module = next((module._modules[name] for name in WRAPPERS if name in module._modules), None)
