"""Optimizer steps, observed through torch's global optimizer hooks.

They cover every optimizer, created before or after the hooks, fused, foreach or with a closure. The end of the
outermost step ends a step of the run. All rare work of the agent happens there.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from typing import Any

from ..dynamo import FLAG, compiling, not_for_dynamo
from ..event_writer import clock
from ..look import ByIdentity
from ..observe import observe
from ..ring import MARK_OPTIMIZER_END, MARK_OPTIMIZER_START, OPTIMIZER
from ..session import Agent, ident
from ..stack import Places, outwards

MADE = "_patch_step_function"
"""Method that `Optimizer.__init__` calls once."""


def install(agent: Agent, seen: Callable[[Any, int, Any], None], another: Callable[[], None] = lambda: None) -> None:
    """Register the optimizer hooks.

    `seen(optimizer, id, made)` is called at an optimizer's first step and again at its third, when its state exists;
    `made` holds `place` and `callers` of its construction. `another` is called at the first step of every optimizer but
    the first one.
    """
    from torch.optim.optimizer import (  # type: ignore[import-not-found,unused-ignore]
        _global_optimizer_post_hooks,
        register_optimizer_step_post_hook,
        register_optimizer_step_pre_hook,
    )

    is_traced, flag = compiling(agent.torch)
    dynamo = agent.dynamo
    mark = agent.mark
    put = agent.put
    known = ByIdentity()
    """For each optimizer, its number and how many of its steps were fully processed."""
    entries = known.entries
    numbers = itertools.count(1)
    open_steps: list[tuple[int, int, int]] = []
    """Running steps as `id` of the optimizer, ns, thread; outer steps first.

    A step that has failed stays here for a while, so an entry must not keep alive the optimizer that filled the memory.
    """
    places = Places()

    def before(optimizer: Any, args: Any, kwargs: Any) -> None:
        if dynamo and (is_traced() or flag(FLAG)):
            return
        if agent.capturing:
            return
        if not open_steps and (mark is None or not mark.on):  # nearly always
            open_steps.append((id(optimizer), clock(), ident()))
            return
        try:
            thread = ident()
            for step in [step for step in open_steps if step[2] == thread][::-1]:
                if step[0] != id(optimizer) and _is_running(step[0]):
                    break
                open_steps.remove(step)  # that step has failed: torch then skips the post hook
            if mark is not None and not open_steps:
                mark(MARK_OPTIMIZER_START)
            open_steps.append((id(optimizer), clock(), thread))
        except Exception as error:
            agent.give_up("optimizer", error)

    def after(optimizer: Any, args: Any, kwargs: Any) -> None:
        if dynamo and (is_traced() or flag(FLAG)):
            return
        end = clock()
        key = id(optimizer)
        if agent.capturing:  # nothing is updated yet
            agent.capturing[-1] = known_of(optimizer)[0]
            return
        if end < agent.attend and len(open_steps) == 1 and open_steps[0][0] == key:
            entry = entries.get(key)
            if entry is not None:
                agent.steps += 1
                put((ident(), OPTIMIZER, open_steps.pop(0)[1], end, entry[1][0]))
                return
        try:
            thread = ident()
            thread_steps = [step for step in open_steps if step[2] == thread]
            if mark is not None and len(thread_steps) <= 1:
                mark(MARK_OPTIMIZER_END)
                end = clock()
            begin = end
            while thread_steps:  # also remove steps that failed inside this one
                step = thread_steps.pop()
                open_steps.remove(step)
                begin = step[1]
                if step[0] == key:
                    break
            record = known_of(optimizer)
            number = record[0]
            record[1] += 1
            if thread_steps:
                put((thread, OPTIMIZER, begin, end, number, 0, 1))
                return
            put((thread, OPTIMIZER, begin, end, number, 0 if agent.own_steps else agent.end_step(end)))
            agent.after_step(end)
            if agent.abandoned and next(reversed(_global_optimizer_post_hooks)) == handles[1].id:
                agent.leave()  # torch is looping over these hooks: only the last may be removed
                return
            if record[1] in (1, 3):
                agent.flush()
                start = clock()
                seen(optimizer, number, places.get(optimizer))
                agent.account(start)
        except Exception as error:
            agent.give_up("optimizer", error)

    def known_of(optimizer: Any) -> list[int]:
        """Return an optimizer's entry in `known`; number it if it is new."""
        known_record: list[int] | None = known.get(optimizer)
        if known_record is None:
            known_record = [next(numbers), 0]
            known.put(optimizer, known_record)
            if known_record[0] > 1:
                another()
        return known_record

    not_for_dynamo(agent.torch, before, after, callees=True)
    handles = [
        _numbered_apart(agent.torch, register_optimizer_step_pre_hook(before)),
        _numbered_apart(agent.torch, register_optimizer_step_post_hook(after)),
    ]

    def failed() -> None:
        """Report the optimizers that have not stepped: the first step may be what failed."""
        for optimizer, origin in places.items():
            if known.get(optimizer) is None:
                seen(optimizer, known_of(optimizer)[0], origin)

    agent.on_failure.append(failed)
    agent.uninstall += [("optimizer", handle.remove) for handle in handles]
    if hasattr(agent.torch.optim.Optimizer, MADE):
        observe(agent, "optimizer", MADE, places.note, agent.torch.optim.Optimizer)


def _numbered_apart(torch: Any, handle: Any) -> Any:
    """Give a registered hook a negative number, which no other hook gets.

    So torch numbers the program's hooks as it does without the agent.
    """
    handle_class, number = torch.utils.hooks.RemovableHandle, handle.id
    hooks = handle.hooks_dict_ref()
    if handle_class.next_id == number + 1:  # else another thread has registered one
        handle.id = -1 - number
        hooks[handle.id] = hooks.pop(number)
        handle_class.next_id = number
    return handle


def _is_running(key: int) -> bool:
    """Return whether the optimizer with that id is in its step, on the stack of this thread.

    Only torch's own wrapper of a step is inspected: before Python 3.13 a frame whose `f_locals` were read keeps
    everything they hold until the frame ends.
    """
    optim: Any = sys.modules["torch.optim.optimizer"]
    file = optim.Optimizer.profile_hook_step.__code__.co_filename
    for frame in outwards(sys._getframe(1)):
        code = frame.f_code
        is_step = code.co_name == "wrapper" and code.co_filename == file
        if is_step and id(frame.f_locals.get("self")) == key:
            return True
    return False
