"""Forward passes of the root modules: the outermost calls, whatever wraps them.

Which modules are roots is found out by watching every module call for a few steps; after that only the roots carry
anything. The wrapper goes in through `_compiled_call_impl`, the slot `Module.compile` uses: it is looked at before any
other call path, is left out of pickles and copies, and Dynamo neither breaks nor recompiles because of it.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

from ..outlet import clock
from ..ring import FORWARD, MARK_FORWARD_END, MARK_FORWARD_START
from ..session import Agent, ident
from ..tracebacks import step_aside

WATCHED_STEPS = 3
# A program that calls more modules than this from outside any other calls layers, not models.
MOST_ROOTS = 64
# Looking again when the roots have gone quiet or there is a new optimizer (a second model, another fold) is bounded,
# since watching costs.
MOST_WATCHES = 32


class _LeftOut(partial):  # type: ignore[type-arg]
    """The wrapper of a module that says itself what its state is, as DistributedDataParallel does: such a one takes the
    slot into copies, which would call the original, and into pickles, which would fail."""

    def __reduce__(self) -> Any:
        """None."""
        return type(None), ()


class Roots:
    """The root modules of a program, and the hooks on them."""

    def __init__(
        self,
        agent: Agent,
        seen: Callable[[Any, int], None],
        inner: Callable[[Any, int, Any], Any] = lambda module, number, before: before,
    ) -> None:
        """`seen(module, id)` is called when a root has taken part in a training step; `inner(module, id, before)` gives
        what its wrapper calls, where `before` (None: the module's own `_call_impl`) is what stood in the slot."""
        self._agent = agent
        self._seen = seen
        self._inner = inner
        self._module = agent.torch.nn.Module
        self._plain_call = self._module.__call__
        self._watching: Any = None
        self._watches = 0
        self._watched = 0
        """Steps since the watch began."""
        self._inside = threading.local()
        """Of each thread: has `root` while it is in a root's forward."""
        self._numbers = itertools.count(1)
        self._roots: dict[int, tuple[weakref.ref[Any], int]] = {}
        """By id(module)."""
        self._wrappers: dict[int, Any] = {}
        self._told: set[int] = set()
        self._largest = (0, 0, 0)
        """Rows, inputs and outputs of the largest product of a linear layer."""
        self._called = [False]
        """Whether a root has been, since the last tick. A list, for a closure to write to at the least cost."""

    def install(self) -> Callable[[], None]:
        """Begin to watch; returns what takes everything out."""
        self._watch()
        self._agent.on_tick.append(self._at_tick)
        self._agent.on_failure.append(self._tell)
        undo = self._hook_replicas()

        def uninstall() -> None:
            undo()
            self._uninstall()

        return uninstall

    def look_again(self) -> None:
        """What is trained may be another model than before."""
        if self._watching is None and self._watches < MOST_WATCHES:
            self._watch()

    # ---- finding the roots ----

    def _watch(self) -> None:
        agent = self._agent
        is_compiling = agent.torch.compiler.is_compiling
        inside = self._inside
        plain = self._plain_call
        linear = agent.torch.nn.Linear

        roots = self

        # torch's profiler looks for the module under the name `self` in the frames of `Module.__call__`.
        def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
            if is_compiling():
                return plain(self, *args, **kwargs)
            try:
                if type(self) is linear:
                    roots._measure(self, args)
                number = 0 if hasattr(inside, "root") or agent.is_recomputing() else roots._root(self)
                if number == 0:
                    return plain(self, *args, **kwargs)
                return roots._timed(partial(plain, self), self, number, args, kwargs)
            except BaseException as error:
                step_aside(error)
                raise

        self._watches += 1
        self._watched = 0
        self._watching = __call__
        agent.on_step.append(self._at_step)
        self._module.__call__ = __call__

    def _measure(self, linear: Any, args: Any) -> None:
        try:
            inputs, outputs = linear.in_features, linear.out_features
            size = (args[0].numel() // inputs, inputs, outputs)
            if size[0] * inputs * outputs > self._largest[0] * self._largest[1] * self._largest[2]:
                self._largest = size
        except Exception:  # a layer that is called in a way of its own
            return

    def _root(self, module: Any) -> int:
        """The module's number; 0 if it is none of interest: no parameters, as a loss."""
        known = self._roots.get(id(module))
        if known is not None and known[0]() is module:
            return known[1]
        try:
            if len(self._roots) >= MOST_ROOTS:
                self._forget_dead()
            if len(self._roots) >= MOST_ROOTS or next(self._module.parameters(module), None) is None:
                return 0
        except Exception as error:
            self._agent.give_up("forward", error)
            return 0
        number = next(self._numbers)
        self._roots[id(module)] = (weakref.ref(module), number)
        for act in self._agent.on_call:
            try:
                act(module)
            except Exception as error:
                self._agent.problem("trial", error)
        return number

    def _forget_dead(self) -> None:
        """Of a search or a cross-validation there may be hundreds of models, one after the other."""
        for key, (module, number) in list(self._roots.items()):
            if module() is None:
                del self._roots[key]
                self._wrappers.pop(number, None)
                self._told.discard(number)

    def _timed(self, call: Any, module: Any, number: int, args: Any, kwargs: Any) -> Any:
        agent = self._agent
        mark = agent.mark
        inside = self._inside
        if mark is not None:
            mark(MARK_FORWARD_START)
        inside.root = number
        begin = clock()
        try:
            return call(*args, **kwargs)
        except BaseException as error:
            step_aside(error)
            raise
        finally:
            end = clock()
            del inside.root
            if mark is not None:
                mark(MARK_FORWARD_END)
            self._called[0] = True
            agent.put((ident(), FORWARD, begin, end, number, module.training, agent.torch.is_grad_enabled()))

    def _at_step(self) -> None:
        self._watched += 1
        if self._watching is None or self._watched < WATCHED_STEPS or self._profiled():
            return
        self._agent.on_step.remove(self._at_step)
        self._stop_watching()
        rows, inputs, outputs = self._largest
        if rows:
            self._agent.fact("matmul", {"id": 0, "rows": rows, "inputs": inputs, "outputs": outputs})
        self._tell()
        for reference, number in list(self._roots.values()):
            module = reference()
            if module is not None:
                self._wrap(module, number)

    def _tell(self) -> None:
        """Once it is known which train; of a program that has failed before that, all it has called."""
        for reference, number in list(self._roots.values()):
            module = reference()
            if module is not None and number not in self._told:
                self._told.add(number)
                self._seen(module, number)

    def _profiled(self) -> bool:
        """The program's profiler is recording: it knows a module's call by the code that `Module.__call__` had as it
        began, so that has to stay."""
        return bool(getattr(self._agent.torch.autograd.profiler, "_is_profiler_enabled", False))

    def _stop_watching(self) -> None:
        if self._module.__call__ is self._watching:
            self._module.__call__ = self._plain_call
        self._watching = None

    # ---- on the roots only ----

    def _wrap(self, module: Any, number: int) -> None:
        before = module._compiled_call_impl
        if before is not None and before is self._wrappers.get(number):
            return
        inner = self._inner(module, number, before)
        call = self._marked(module, number, inner) if self._agent.mark else self._lean(module, number, inner)
        if type(module).__getstate__ is not self._module.__getstate__ or hasattr(type(module), "__deepcopy__"):
            call = _LeftOut(call)
        call.__wrapped__ = before
        self._wrappers[number] = call
        object.__setattr__(module, "_compiled_call_impl", call)

    def _hook_replicas(self) -> Callable[[], None]:
        """DataParallel copies the dict of each module, with a wrapper that would call the original on its own GPU."""
        plain = getattr(self._module, "_replicate_for_data_parallel", None)
        if plain is None:
            return lambda: None
        wrappers = self._wrappers

        def _replicate_for_data_parallel(self: Any) -> Any:
            replica = plain(self)
            call = replica.__dict__.get("_compiled_call_impl")
            if call is not None and call in wrappers.values():
                _put_back(replica, call)
            return replica

        self._module._replicate_for_data_parallel = _replicate_for_data_parallel

        def undo() -> None:
            if self._module._replicate_for_data_parallel is _replicate_for_data_parallel:
                self._module._replicate_for_data_parallel = plain

        return undo

    def _lean(self, module: Any, number: int, before: Any) -> Any:
        """The least that can be done. A root inside another is timed as well: the recorder sees that it is inside."""
        is_compiling = self._agent.torch.compiler.is_compiling
        grad = self._agent.torch.is_grad_enabled
        dynamo = self._agent.dynamo
        put = self._agent.put
        called = self._called
        owner = weakref.ref(module)  # the module owns this closure: anything stronger would keep it alive

        def call(*args: Any, **kwargs: Any) -> Any:
            this: Any = owner()
            plain = this._call_impl if before is None else before
            if dynamo and is_compiling():
                return plain(*args, **kwargs)
            begin = clock()
            try:
                return plain(*args, **kwargs)
            except BaseException as error:
                step_aside(error)
                raise
            finally:
                put((ident(), FORWARD, begin, clock(), number, this.training, grad()))
                called[0] = True

        return call

    def _marked(self, module: Any, number: int, before: Any) -> Any:
        """With CUDA: only the outermost call is a boundary of the step."""
        agent = self._agent
        is_compiling = agent.torch.compiler.is_compiling
        inside = self._inside
        owner = weakref.ref(module)

        def call(*args: Any, **kwargs: Any) -> Any:
            this: Any = owner()
            plain = this._call_impl if before is None else before
            if is_compiling():
                return plain(*args, **kwargs)
            try:
                if hasattr(inside, "root") or agent.is_recomputing():
                    return plain(*args, **kwargs)
                return self._timed(plain, this, number, args, kwargs)
            except BaseException as error:
                step_aside(error)
                raise

        return call

    def _at_tick(self) -> None:
        """Wrap again what `m.compile()` has overwritten; look for new roots when the known ones are quiet."""
        if self._watching is not None:
            return
        if not self._called[0]:
            self.look_again()
        else:
            for reference, number in list(self._roots.values()):
                module = reference()
                if module is not None:
                    self._wrap(module, number)
        self._called[0] = False

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
                _put_back(module, wrapper)


def _put_back(module: Any, wrapper: Any) -> None:
    """What stood in the slot before."""
    if wrapper.__wrapped__ is None:
        del module.__dict__["_compiled_call_impl"]
    else:
        module._compiled_call_impl = wrapper.__wrapped__
