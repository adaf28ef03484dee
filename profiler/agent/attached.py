"""The code that `profile-train attach` runs in a live program to install or remove the hooks.

It runs in the main thread between two bytecodes, at whatever point that thread has reached. At some points hooks must
not change; the answer is then "busy", and profile-train asks again some milliseconds later.
"""

from __future__ import annotations

import json
import os
import posix
import sys
import threading
from typing import Any

from .files import is_folder
from .ranks import worker_info
from .stack import outwards
from .tracebacks import is_ours

# Functions of torch.nn.modules.module (_CALLS) and of torch.autograd.graph (_BACKWARD).
_CALLS = frozenset(("_call_impl", "_wrapped_call_impl"))
_BACKWARD = "_engine_run_backward"

# Agent functions that call code of the program or of torch. Hooks may be installed or removed while such a call runs.
_WRAPPERS = frozenset(("__next__", "run", "call", "fetch", "timed", "observed"))


def act(order: dict[str, Any]) -> None:
    """Carry out the order and write the answer file. Every error goes into the answer; the program never sees one."""
    try:
        answer = _done(order)
    except KeyboardInterrupt:  # the user's Ctrl-C arrived in agent code; it is sent again
        _out()
        answer = {"state": "interrupted"}
    except BaseException as error:
        _out()
        answer = {"state": "failed", "message": f"{type(error).__name__}: {error}"}
    path = order["answer"]
    try:
        with open(path + ".new", "w", encoding="utf-8") as file:
            json.dump(answer, file)
        os.rename(path + ".new", path)
    except OSError:  # nobody waits for the answer anymore
        if order["act"] == "begin":
            _out()


def _done(order: dict[str, Any]) -> dict[str, Any]:
    if order["act"] == "begin":
        return _begin(order["settings"])
    if _is_busy():
        return {"state": "busy"}
    _out()
    return {"state": "out"}


def _begin(settings: dict[str, Any]) -> dict[str, Any]:
    if "torch.nn" not in sys.modules or not hasattr(sys.modules["torch"], "optim"):
        return {"state": "no torch"}
    if worker_info() is not None:
        return {"state": "worker"}
    from . import start

    for module in (start, sys.modules.get("profiler.agent.start")):
        agent = getattr(module, "active", None)
        if agent is None:
            continue
        if not is_abandoned(agent.settings):
            return {"state": "recorded", "recorder": agent.settings.get("recorder")}
    if _steps_are_compiled(sys.modules["torch"]):
        return {"state": "compiled"}
    if _is_busy():
        return {"state": "busy"}
    start.end()  # ends an agent whose recorder was killed
    start.begin_or_leave(settings)
    return {"state": "in"}


def is_abandoned(settings: dict[str, Any]) -> bool:
    """Return whether the command that attached the hooks has exited or has removed its folder of rings."""
    if "recorder" not in settings:
        return False
    try:
        posix.kill(settings["recorder"], 0)
    except ProcessLookupError:
        return True
    except Exception:  # another user's process, as after sudo, or an audit hook of the program forbids kill()
        pass
    return not is_folder(settings["rings"])


def _steps_are_compiled(torch: Any) -> bool:
    """Return whether torch.compile has compiled an optimizer's `step`.

    Such code is valid only while optimizers have no hooks. With the agent's hooks torch would recompile it, and the
    compiled code would call none of them.
    """
    try:
        constants = torch.optim.Optimizer.profile_hook_step.__code__.co_consts
        cache_entries_of = torch._C._dynamo.eval_frame._debug_get_cache_entry_list
        return any(
            cache_entries_of(constant) for constant in constants if getattr(constant, "co_name", None) == "wrapper"
        )
    except (AttributeError, TypeError):  # another version of torch
        return False


def _out() -> None:
    start = sys.modules.get(__package__ + ".start")
    if start is not None:
        start.end()


def _is_busy() -> bool:
    """Return whether some thread is at a point where hooks must not change.

    Such points are: inside a loop over torch's global optimizer hooks; inside a module's call, whose inner modules
    would be taken for roots; in the middle of a backward pass; inside the agent's own code. Code within the fetch of a
    batch does not count, because transforms are modules, too.
    """
    optimizer_file = _file("torch.optim.optimizer")
    module_file = _file("torch.nn.modules.module")
    loader_file = _file("torch.utils.data.dataloader")
    engine_file = _file("torch.autograd.graph")
    program_frame = _program_frame()
    frames = sys._current_frames()
    frames[threading.get_ident()] = program_frame
    for innermost_frame in frames.values():
        busy = False
        for frame in outwards(innermost_frame):
            file, name = frame.f_code.co_filename, frame.f_code.co_name
            if file == optimizer_file and name == "wrapper":
                return True
            if is_ours(frame.f_code) and (frame is innermost_frame or name not in _WRAPPERS):
                return True
            # The current thread runs Python now. So if the program's innermost frame here is the function that calls
            # the engine, the engine is not running.
            if (file == module_file and name in _CALLS) or (
                file == engine_file and name == _BACKWARD and frame is not program_frame
            ):
                busy = True
            elif file == loader_file and name in ("__next__", "__iter__"):
                busy = False
        if busy:
            return True
    return False


def _program_frame() -> Any:
    """Return the innermost frame of this thread that belongs to the program.

    It lies below the two frames of the injected lines that call the agent.
    """
    injected_frames = (frame for frame in outwards(sys._getframe()) if frame.f_code.co_filename == "<profile-train>")
    frame = next(injected_frames, None)
    return frame and frame.f_back and frame.f_back.f_back


def _file(module: str) -> str | None:
    return getattr(sys.modules.get(module), "__file__", None)
