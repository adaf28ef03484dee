"""DistributedDataParallel: which passes reduce gradients, and torch's own timings of some of them.

A program without it pays nothing: passes are counted only for roots that are wrapped in DistributedDataParallel.
"""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from ..dynamo import not_for_dynamo
from ..facts import WRAPPERS
from ..look import child, dict_of, is_a, name_of, parameters, tensor
from ..observe import observe
from ..patching import taking_out
from ..session import Agent
from ..stack import Places

# torch's Reducer times the first ten passes that reduce, then every hundredth (kDDPRuntimeLoggingSampleRate).
FIRST_SAMPLES, SAMPLE_RATE = 10, 100

# Fields of DdpFact, and the names in torch's logger of the means of all samples in ns.
_TIMES = {
    "compute": "avg_backward_compute_time",
    "communication": "avg_backward_comm_time",
    "overlap": "avg_backward_compute_comm_overlap_time",
}


class Ddp:
    """The DistributedDataParallel modules of a program that are roots."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._class = agent.torch.nn.parallel.DistributedDataParallel
        self._places = Places()
        self._counts: dict[int, _Count] = {}
        """The counts, by number of the root."""

    def install(self) -> None:
        """Remember where each module is made, and report each one at every tick."""
        observe(self._agent, "ddp", "__init__", self._places.note, self._class)
        self._agent.on_tick.append(self._tell)
        self._agent.uninstall.append(("ddp", taking_out(self._tell, self._agent.on_tick)))

    def counting(self, root: Any, number: int) -> Callable[[bool, bool], None] | None:
        """Return the function that counts the passes of a root. None if the root has no DistributedDataParallel."""
        module = next((candidate for candidate in _inwards(root) if is_a(candidate, self._class)), None)
        if module is None:
            return None
        try:
            # An optimizer may step in a backward pass, which holds the lock that `_logged` takes.
            logged = {} if self._agent.in_backward else _logged(module)
            origin = self._places.get(module, {"place": None})
            count = self._counts[number] = _Count(module, self._agent.steps, origin["place"], logged)
        except Exception as error:
            self._agent.give_up("ddp", error)
            return None
        passes, reference = count.passes, count.module

        def passed(training: bool, grad: bool) -> None:
            if training and grad:
                # As in DDP, the value at the time of the forward pass counts.
                passes[dict_of(reference()).get("require_backward_grad_sync") is not False] += 1

        not_for_dynamo(self._agent.torch, passed, callees=True)
        return passed

    def _tell(self) -> None:
        if self._agent.in_backward:  # as in `counting`
            return
        for number, count in list(self._counts.items()):
            if count.module() is None:
                del self._counts[number]
            else:
                self._agent.fact("ddp", count.fact(number, self._agent.steps))


class _Count:
    """The passes of one module since the agent first saw it."""

    def __init__(self, module: Any, steps: int, where: Any, logged: dict[str, Any]) -> None:
        self.module = weakref.ref(module)
        self.passes = [0, 0]
        """Passes without and with reduction."""
        self._steps = steps
        self._place = where
        tensors = [tensor(parameter) for parameter in parameters(module)]
        if None in tensors:
            raise TypeError("the size of a parameter cannot be read without running the program's code")
        gradients = [gradient for gradient in tensors if gradient is not None and gradient.trainable]
        self._bytes = sum(gradient.bytes for gradient in gradients)
        self._dtypes = sorted({gradient.dtype for gradient in gradients})
        self._before = _sums(logged)

    def fact(self, number: int, steps: int) -> dict[str, Any]:
        """Return the settings and buckets of a DDP model as a fact."""
        module = self.module()
        logged = _logged(module)
        bucket_sizes = logged.get("rebuilt_bucket_sizes") or logged.get("bucket_sizes")
        attributes = dict_of(module)
        hooks = attributes.get("_comm_hooks")
        fact = {
            "id": number,
            "place": self._place,
            "backend": logged.get("backend_name"),
            "gradient_bytes": self._bytes,
            "dtypes": self._dtypes,
            "bucket_cap": attributes.get("bucket_bytes_cap"),
            "buckets": len(bucket_sizes.split(",")) if bucket_sizes else None,
            "gradient_as_bucket_view": attributes.get("gradient_as_bucket_view") is True,
            "find_unused_parameters": attributes.get("find_unused_parameters") is True,
            "comm_hook": logged.get("comm_hook") or (_named(hooks[0][0]) if hooks else None),
            "steps": steps - self._steps,
            "passes": sum(self.passes),
            "reduced": self.passes[True],
        }
        fact.update(self._times(_sums(logged)))
        return fact

    def _times(self, sums: dict[str, int]) -> dict[str, Any]:
        """Return the mean times in seconds over the samples since the agent first saw the module.

        Only `{"samples": 0}` if torch has timed none since.
        """
        samples = sums["samples"] - self._before["samples"]
        if samples <= 0 or not sums["communication"]:
            return {"samples": 0}
        means = {name: max(0, sums[name] - self._before[name]) / samples / 1e9 for name in _TIMES}
        return {"samples": samples, **means}


def _named(hook: Any) -> str:
    return str(hook.__qualname__) if type(hook) is types.FunctionType else name_of(type(hook))


def _logged(module: Any) -> dict[str, Any]:
    """Return what torch has logged about the module: a copy of some strings and numbers.

    Never call it in a backward pass: it takes the lock that torch holds while a communication hook runs.
    """
    try:
        logged = dict_of(module)["logger"]._get_ddp_logging_data()
        return {**logged.strs_map, **logged.ints_map}
    except Exception:  # an interface that torch calls a prototype; and there is no logger with the Python reducer
        return {}


def _sums(logged: dict[str, Any]) -> dict[str, int]:
    """Return how many passes torch has timed, and the sums of their times in ns."""
    passes = int(logged.get("iteration", 0))
    samples = min(passes, FIRST_SAMPLES) + passes // SAMPLE_RATE
    return {"samples": samples, **{name: samples * int(logged.get(key, 0)) for name, key in _TIMES.items()}}


def _inwards(module: Any) -> Iterator[Any]:
    """Yield a module, then each module it wraps, from the outside in."""
    while module is not None:
        yield module
        module = next((inner for name in WRAPPERS if (inner := child(module, name)) is not None), None)
