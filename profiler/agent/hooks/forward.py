"""Forward passes of the root modules: the outermost calls, whatever wraps them.

Which modules are roots is found out by watching every module call for a few steps; after that only the roots carry
anything. The wrapper goes in through `_compiled_call_impl`, the slot `Module.compile` uses: it is looked at before any
other call path, is left out of pickles and copies, and Dynamo neither breaks nor recompiles because of it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from ..outlet import clock
from ..ring import FORWARD, MARK_FORWARD_END, MARK_FORWARD_START
from ..session import Agent, ident
from ..tracebacks import step_aside

WATCHED_STEPS = 3
# A program that calls more modules than this from outside any other calls layers, not models.
MOST_ROOTS = 64
# Looking again when the roots have gone quiet (a second model, another phase) is bounded, since watching costs.
MOST_WATCHES = 5


class Roots:
    """The root modules of a program, and the hooks on them."""

    def __init__(self, agent: Agent, seen: Callable[[Any, int], None]) -> None:
        """`seen(module, id)` is called when a root has taken part in a training step."""
        self._agent = agent
        self._seen = seen
        self._module = agent.torch.nn.Module
        self._plain_call = self._module.__call__
        self._watching: Any = None
        self._watches = 0
        self._watched = 0
        """Steps since the watch began."""
        self._depth = 0
        self._roots: dict[int, tuple[weakref.ref[Any], int]] = {}
        """By id(module)."""
        self._wrappers: dict[int, Any] = {}
        self._told: set[int] = set()
        self._calls = 0

    def install(self) -> Callable[[], None]:
        """Begin to watch; returns what takes everything out."""
        self._watch()
        self._agent.on_tick.append(self._at_tick)
        return self._uninstall

    # ---- finding the roots ----

    def _watch(self) -> None:
        agent = self._agent
        is_compiling = agent.torch.compiler.is_compiling
        plain = self._plain_call

        def __call__(module: Any, *args: Any, **kwargs: Any) -> Any:
            if is_compiling():
                return plain(module, *args, **kwargs)
            try:
                number = 0 if self._depth or agent.backward_depth else self._root(module)
                if number == 0:
                    return plain(module, *args, **kwargs)
                return self._timed(plain, module, number, args, kwargs)
            except BaseException as error:
                step_aside(error)
                raise

        self._watches += 1
        self._watched = 0
        self._watching = __call__
        agent.on_step.append(self._at_step)
        self._module.__call__ = __call__

    def _root(self, module: Any) -> int:
        """The module's number; 0 if it is none of interest: no parameters, as a loss."""
        known = self._roots.get(id(module))
        if known is not None and known[0]() is module:
            return known[1]
        try:
            if len(self._roots) >= MOST_ROOTS or next(self._module.parameters(module), None) is None:
                return 0
        except Exception as error:
            self._agent.give_up("forward", error)
            return 0
        number = len(self._roots) + 1
        self._roots[id(module)] = (weakref.ref(module), number)
        return number

    def _timed(self, call: Any, module: Any, number: int, args: Any, kwargs: Any) -> Any:
        agent = self._agent
        mark = agent.mark
        if mark is not None:
            mark(MARK_FORWARD_START)
        self._depth = 1
        begin = clock()
        try:
            return call(module, *args, **kwargs)
        except BaseException as error:
            step_aside(error)
            raise
        finally:
            end = clock()
            self._depth = 0
            if mark is not None:
                mark(MARK_FORWARD_END)
            self._calls += 1
            agent.put((ident(), FORWARD, begin, end, number, module.training, agent.torch.is_grad_enabled()))

    def _at_step(self) -> None:
        self._watched += 1
        if self._watching is None or self._watched < WATCHED_STEPS:
            return
        self._agent.on_step.remove(self._at_step)
        self._stop_watching()
        for reference, number in list(self._roots.values()):
            module = reference()
            if module is None:
                continue
            if number not in self._told:
                self._told.add(number)
                self._seen(module, number)
            self._wrap(module, number)

    def _stop_watching(self) -> None:
        if self._module.__call__ is self._watching:
            self._module.__call__ = self._plain_call
        self._watching = None

    # ---- on the roots only ----

    def _wrap(self, module: Any, number: int) -> None:
        before = module._compiled_call_impl
        if before is not None and before is self._wrappers.get(number):
            return
        agent = self._agent
        is_compiling = agent.torch.compiler.is_compiling
        grad = agent.torch.is_grad_enabled
        put = agent.put
        owner = weakref.ref(module)  # the module owns this closure: anything stronger would keep it alive

        def call(*args: Any, **kwargs: Any) -> Any:
            this: Any = owner()
            plain = this._call_impl if before is None else before
            if is_compiling():
                return plain(*args, **kwargs)
            if self._depth or agent.backward_depth:
                try:
                    return plain(*args, **kwargs)
                except BaseException as error:
                    step_aside(error)
                    raise
            self._depth = 1
            mark = agent.mark
            if mark is not None:
                mark(MARK_FORWARD_START)
            begin = clock()
            try:
                return plain(*args, **kwargs)
            except BaseException as error:
                step_aside(error)
                raise
            finally:
                end = clock()
                self._depth = 0
                if mark is not None:
                    mark(MARK_FORWARD_END)
                self._calls += 1
                put((ident(), FORWARD, begin, end, number, this.training, grad()))

        call.__wrapped__ = before  # type: ignore[attr-defined]
        self._wrappers[number] = call
        object.__setattr__(module, "_compiled_call_impl", call)

    def _at_tick(self) -> None:
        """Wrap again what `m.compile()` has overwritten; look for new roots when the known ones are quiet."""
        if self._watching is not None:
            return
        if self._calls == 0 and self._watches < MOST_WATCHES:
            self._watch()
        else:
            for reference, number in list(self._roots.values()):
                module = reference()
                if module is not None:
                    self._wrap(module, number)
        self._calls = 0

    def _uninstall(self) -> None:
        for callbacks, ours in ((self._agent.on_tick, self._at_tick), (self._agent.on_step, self._at_step)):
            if ours in callbacks:
                callbacks.remove(ours)
        if self._watching is not None:
            self._stop_watching()
        for reference, number in self._roots.values():
            module = reference()
            wrapper = self._wrappers.get(number)
            if module is not None and wrapper is not None and module._compiled_call_impl is wrapper:
                if wrapper.__wrapped__ is None:
                    del module.__dict__["_compiled_call_impl"]
                else:
                    module._compiled_call_impl = wrapper.__wrapped__
