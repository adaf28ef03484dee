"""Features that no attribute reveals later.

They are autocast, GradScaler, activation checkpointing, packed sequences, and who set the number of threads.
"""

import os
import sys
from collections.abc import Callable
from typing import Any

from ..look import dict_of
from ..observe import observe, observer
from ..patching import undoing
from ..session import Agent
from ..stack import outwards

_ANOMALY_MODE = "torch.autograd.anomaly_mode"


def _for_torch_itself() -> bool:
    """Return whether torch itself switches anomaly detection, as it does while it compiles."""
    modules = (frame.f_globals.get("__name__") for frame in outwards(sys._getframe(3)))  # skip the observer's frames
    return str(next((module for module in modules if module != _ANOMALY_MODE), None)).startswith("torch.")


# Anomaly detection counts as on if it was seen on within this many steps: a program may switch it on and off in every
# step, or may have just switched it off at its end.
RECENT_STEPS = 10

# Looks are half a second apart at first: a profiler schedule of some steps has then ended, or rests at one of the
# looks.
LEAST_LOOKS = 3


class Usage:
    """The features seen in use: fields of FlagsFact, and the counts of the gradient scaler."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self.flags: dict[str, Any] = {"autocast": False, "grad_scaler": False, "checkpointing": False, "packed": False}
        by_environment = any(name in os.environ for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"))
        # When attached, the agent does not know what the program has called before.
        default = None if "recorder" in agent.settings else "default"
        self.flags["threads_from"] = "environment" if by_environment else default
        self.scaler_steps = 0
        self.scaler_applied = 0
        self._anomaly_step: int | None = None
        """The step in which anomaly detection was last seen on, or being switched off."""
        self._looks = self._recording = self._looked = 0
        """Number of looks at the program's own profiler, number of looks that found it recording, and step of the last
        look."""

    def install(self) -> None:
        """Patch the entry points; a patch that learns everything at its first call then removes itself."""
        torch = self._agent.torch
        self._until_seen(torch.amp.autocast_mode.autocast, "__enter__", self._autocast)
        self._scaler()
        checkpoint: Any = sys.modules.get("torch.utils.checkpoint")
        # Reentrant or not, checkpointing first calls this for the autocast settings to recompute under.
        if hasattr(checkpoint, "_get_autocast_kwargs"):
            self._until_seen(checkpoint, "_get_autocast_kwargs", lambda *_: self._note("checkpointing"))
        self._until_seen(torch.nn.utils.rnn.PackedSequence, "__new__", lambda *_: self._note("packed"))
        # Observed to the end, because it is rarely called, and the program may compare the function.
        observe(self._agent, "usage", "set_num_threads", self._threads, torch)
        observe(self._agent, "usage", "set_anomaly_enabled", self._anomaly, torch)

    def _autocast(self, context: Any) -> bool:
        attributes = dict_of(context)
        if attributes.get("_enabled") is not True:
            return False
        self.flags["autocast"] = True
        self.flags["autocast_dtype"] = str(attributes.get("fast_dtype")).replace("torch.", "")
        return True

    def _scaler(self) -> None:
        cls = getattr(self._agent.torch.amp, "GradScaler", None)
        if cls is None:
            return

        def before(scaler: Any, *_: Any, **__: Any) -> tuple[Any, int]:
            return scaler, self._agent.steps

        def after(begun: tuple[Any, int], *_: Any) -> None:
            scaler, steps = begun
            if dict_of(scaler).get("_enabled") is not False:
                self.flags["grad_scaler"] = True
                self.scaler_steps += 1
                self.scaler_applied += self._agent.steps > steps

        observe(self._agent, "usage", "step", before, cls, after=after)

    def _note(self, flag: str) -> bool:
        self.flags[flag] = True
        return True

    def _until_seen(self, owner: Any, name: str, seen: Callable[..., bool]) -> None:
        """Call `seen` with the first argument of each call of a function, until it returns True."""
        plain = getattr(owner, name)

        def look(*args: Any, **_: Any) -> None:
            if seen(*args[:1]):
                undo()

        wrapper = observer(self._agent, "usage", plain, look)
        undo = undoing(name, vars(owner)[name], wrapper, owner)
        setattr(owner, name, wrapper)
        self._agent.uninstall.append(("usage", undo))

    def _threads(self, *_: Any, **__: Any) -> None:
        self.flags["threads_from"] = "program"

    def _anomaly(self, *args: Any, **kwargs: Any) -> None:
        mode = args[0] if args else kwargs.get("mode")
        if (self._agent.torch.is_anomaly_enabled() or mode is True) and not _for_torch_itself():
            self._anomaly_step = self._agent.steps

    def profiled_throughout(self) -> bool:
        """Return whether the program's own profiler was recording at all looks, or all but one.

        Fewer than LEAST_LOOKS looks do not count. If the program has trained since the last call, this looks once more.
        One miss is allowed because the last look may come after the training.
        """
        agent = self._agent
        if not agent.window_open and agent.steps > self._looked:
            self._looked = agent.steps
            self._looks += 1
            self._recording += bool(agent.torch._C._autograd._profiler_enabled())
        return self._recording >= max(LEAST_LOOKS, self._looks - 1)

    @property
    def anomaly(self) -> bool:
        """Return whether autograd's anomaly detection is on, or was within the last RECENT_STEPS steps."""
        if self._agent.torch.is_anomaly_enabled():
            self._anomaly_step = self._agent.steps
        return self._anomaly_step is not None and self._agent.steps - self._anomaly_step <= RECENT_STEPS
