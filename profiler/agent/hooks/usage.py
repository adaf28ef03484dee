"""Features that no attribute reveals later.

They are autocast, GradScaler, activation checkpointing, packed sequences, and who set the number of threads.
"""

import functools
import os
import sys
from collections.abc import Callable
from typing import Any

from ..dynamo import in_script, not_for_dynamo
from ..look import dict_of
from ..patching import each_of, in_place_of, patch, undoing
from ..session import Agent
from ..tracebacks import not_counted, step_aside

_ANOMALY_MODE = "torch.autograd.anomaly_mode"


def _for_torch_itself() -> bool:
    """Return whether torch itself switches anomaly detection, as it does while it compiles."""
    frame: Any = sys._getframe(2)
    while frame is not None and frame.f_globals.get("__name__") == _ANOMALY_MODE:
        frame = frame.f_back
    return frame is not None and str(frame.f_globals.get("__name__")).startswith("torch.")


# Anomaly detection that was on so many steps ago is on again in the next: a program has it around each of its steps, or
# has just ended with it.
RECENT_STEPS = 10

# Half a second apart at first: a schedule of some steps has long ended, or rests at one of them.
LEAST_LOOKS = 3


class Usage:
    """The features seen in use: fields of FlagsFact, and the counts of the gradient scaler."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self.flags: dict[str, Any] = {"autocast": False, "grad_scaler": False, "checkpointing": False, "packed": False}
        by_environment = any(name in os.environ for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"))
        # Attached, we do not know what the program has called before.
        unset = None if "recorder" in agent.settings else "default"
        self.flags["threads_from"] = "environment" if by_environment else unset
        self.scaler_steps = 0
        self.scaler_applied = 0
        self._anomaly_step: int | None = None
        """The step in which anomaly detection was last seen on, or being switched off."""
        self._looks = self._recording = self._looked = 0
        """Number of looks at the program's own profiler, of those that found it recording, and the last step."""

    def install(self) -> Callable[[], None]:
        """Patch the entry points; a patch that learns everything at its first call then removes itself."""
        features = self._autocast, self._scaler, self._checkpointing, self._packing, self._threads, self._anomaly
        return each_of([patched() for patched in features])

    def _autocast(self) -> Callable[[], None]:
        def seen(context: Any) -> bool:
            held = dict_of(context)
            if held.get("_enabled") is not True:
                return False
            self.flags["autocast"] = True
            self.flags["autocast_dtype"] = str(held.get("fast_dtype")).replace("torch.", "")
            return True

        return self._until_seen(self._agent.torch.amp.autocast_mode.autocast, "__enter__", seen)

    @not_counted
    def _scaler(self) -> Callable[[], None]:
        cls = getattr(self._agent.torch.amp, "GradScaler", None)
        if cls is None:
            return lambda: None
        plain = cls.step

        @functools.wraps(plain)
        def step(scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            before = self._agent.steps
            try:
                return plain(scaler, optimizer, *args, **kwargs)
            except BaseException as error:
                step_aside(error)
                raise
            finally:
                if dict_of(scaler).get("_enabled") is not False:
                    self.flags["grad_scaler"] = True
                    self.scaler_steps += 1
                    self.scaler_applied += self._agent.steps > before

        not_for_dynamo(self._agent.torch, step)
        return patch("step", plain, step, cls)

    def _checkpointing(self) -> Callable[[], None]:
        """Detect checkpointing: reentrant or not, it first asks for the autocast settings to recompute under."""
        module: Any = sys.modules.get("torch.utils.checkpoint")
        if not hasattr(module, "_get_autocast_kwargs"):
            return lambda: None
        return self._until_seen(module, "_get_autocast_kwargs", lambda *_: self._note("checkpointing"))

    def _packing(self) -> Callable[[], None]:
        packed = self._agent.torch.nn.utils.rnn.PackedSequence
        return self._until_seen(packed, "__new__", lambda *_: self._note("packed"))

    def _note(self, flag: str) -> bool:
        self.flags[flag] = True
        return True

    def _until_seen(self, owner: Any, name: str, seen: Callable[..., bool]) -> Callable[[], None]:
        """Call `seen` with the first argument of each call of a function, until it returns True."""
        plain = getattr(owner, name)

        @functools.wraps(plain)  # TorchScript reads its annotations
        def until_seen(*args: Any, **kwargs: Any) -> Any:
            if seen(*args[:1]):
                undo()
            return plain(*args, **kwargs)

        not_for_dynamo(self._agent.torch, until_seen)
        undo = undoing(name, vars(owner)[name], until_seen, owner)
        setattr(owner, name, until_seen)
        return undo

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

    def _anomaly(self) -> Callable[[], None]:
        torch = self._agent.torch
        plain = torch.set_anomaly_enabled

        @functools.wraps(plain)
        def set_anomaly_enabled(*args: Any, **kwargs: Any) -> Any:
            mode = args[0] if args else kwargs.get("mode")
            if (torch.is_anomaly_enabled() or mode is True) and not _for_torch_itself():
                self._anomaly_step = self._agent.steps
            return plain(*args, **kwargs)

        not_for_dynamo(torch, set_anomaly_enabled)
        ours = in_place_of(plain, set_anomaly_enabled)
        return patch("set_anomaly_enabled", plain, ours, torch, undone=in_script(torch, plain, ours))

    def _threads(self) -> Callable[[], None]:
        torch = self._agent.torch
        plain = torch.set_num_threads

        @functools.wraps(plain)
        def set_num_threads(*args: Any, **kwargs: Any) -> Any:
            self.flags["threads_from"] = "program"
            return plain(*args, **kwargs)

        ours = in_place_of(plain, set_num_threads)
        # To the end, as it is not called often: the program may compare it.
        return patch("set_num_threads", plain, ours, torch, undone=in_script(torch, plain, ours))
