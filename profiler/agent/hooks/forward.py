"""Forward passes of the root modules: the outermost module calls, whatever wraps them.

`Module.__call__` reads the attribute `_compiled_call_impl` before anything else. The agent replaces it with a
descriptor, on a class and never on an instance, which decides at each read. For a root that torch is calling, it
returns a function that Python binds to the called module; for any other module or reader, it returns the value that
would be there without the agent. So no copy, clone or pickle of a module carries anything of the agent, and inner
modules get no agent frame on the stack.

To find the roots, the descriptor is on `torch.nn.Module` for a few steps; after that only on the classes of roots.
"""

from __future__ import annotations

import itertools
import sys
import types
import weakref
from collections.abc import Callable
from typing import Any

from ..dynamo import FLAG, compiling, not_for_dynamo
from ..event_writer import clock
from ..look import ByIdentity, class_dict_of, dict_of, module_of, mro_of, parameters
from ..patching import taking_out
from ..ring import FORWARD, MARK_FORWARD_END, MARK_FORWARD_START
from ..session import Agent, ident
from ..tracebacks import not_counted, step_aside

WATCHED_STEPS = 3
# A program that calls more modules than this from outside any module calls layers, not models.
MOST_ROOTS = 64
# Maximum number of watches, because watching is expensive. It is repeated when the roots are no longer called, or when
# there is a new optimizer (a second model, another fold).
MOST_WATCHES = 32

NAME = "_compiled_call_impl"

Count = Callable[[bool, bool], None]
"""Counter called before a root's forward pass with two flags: training mode, and gradients enabled."""


class _Slot:
    """The descriptor that replaces `_compiled_call_impl`.

    It is a data descriptor: a value that `Module.compile` sets on an instance stays in the instance's dictionary, and
    the agent's function calls it.
    """

    def __set__(self, module: Any, value: Any) -> None:
        dict_of(module)[NAME] = value

    def __delete__(self, module: Any) -> None:
        try:
            del dict_of(module)[NAME]
        except KeyError:
            raise AttributeError(NAME) from None

    def __reduce__(self) -> Any:
        """Reduce to None, torch's own value, in a class that is pickled by value."""
        return type(None), ()


class _Root:
    """The agent's record of a root module."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.count: Count | None = None
        self.is_reported = False


class Roots:
    """The root modules of a program, and the hooks on them."""

    def __init__(
        self,
        agent: Agent,
        seen: Callable[[Any, int], None],
        counting: Callable[[Any, int], Count | None] = lambda module, number: None,
    ) -> None:
        """Prepare the hooks; `install` puts them in place.

        `seen(module, id)` is called once a root has taken part in a training step. `counting(module, id)` returns the
        function that counts the root's passes, or None.
        """
        self._agent = agent
        self._seen = seen
        self._counting = counting
        self._module = agent.torch.nn.Module
        self._held_by: Callable[[Any], dict[str, Any]] = class_dict_of(self._module)["__dict__"].__get__
        """Equivalent of `dict_of` for modules only, in a quarter of the time."""
        self._torchs_call = getattr(self._module, "_wrapped_call_impl", self._module.__call__).__code__
        self._watching = False
        self._watches = 0
        self._watched = 0
        """Steps since the watch began."""
        self._numbers = itertools.count(1)
        self._roots = ByIdentity()
        """A `_Root` for each root."""
        self._classes: list[weakref.ref[type]] = []
        """The classes that carry the slot."""
        self._largest = (0, 0, 0)
        """Rows, inputs and outputs of the largest matmul of a linear layer."""
        self._called = [False]
        """Whether a root has been called since the last tick.

        It is a list, so that a closure can write to it at minimal cost.
        """
        self._call = self._timed()
        self._slot = self._slot_of_roots()
        self._slot_of_all = self._slot_of_modules()

    def install(self) -> None:
        """Hook the forward pass and keep torch.compile away from it."""
        functions = dict_of, module_of, _is_training, self._measure, self._is_root, self._is_outermost
        not_for_dynamo(self._agent.torch, *functions, self._agent.is_recomputing, callees=True)
        self.watch()
        self._agent.on_tick.append(self._at_tick)
        self._agent.on_failure.append(self._tell)
        self._agent.uninstall.append(("forward", self._uninstall))

    # ---- finding the roots ----

    def watch(self) -> None:
        """Watch all modules for some steps; again if the program may now train another model."""
        is_taken = class_dict_of(self._module).get(NAME) is not None  # possibly by another tool
        if self._watching or is_taken or self._watches >= MOST_WATCHES:
            return
        self._watches += 1
        self._watched = 0
        self._watching = True
        self._agent.on_step.append(self._at_step)
        setattr(self._module, NAME, self._slot_of_all)

    @not_counted
    def _slot_of_modules(self) -> Any:
        """Return the descriptor that intercepts every module."""
        linear, roots, call = self._agent.torch.nn.Linear, self, self._call
        is_traced, flag = compiling(self._agent.torch)
        dynamo = self._agent.dynamo
        bound, frame_of, torchs_call = types.MethodType, sys._getframe, self._torchs_call

        def product(self: Any, *args: Any, **kwargs: Any) -> Any:
            roots._measure(self, args)
            plain = dict_of(self).get(NAME)
            if plain is None:
                plain = self._call_impl
            try:
                return plain(*args, **kwargs)
            except BaseException as error:
                step_aside(error)
                raise

        class Watching(_Slot):
            def __get__(self, module: Any, owner: Any = None) -> Any:
                if module is None:
                    return None
                if dynamo and (is_traced() or flag(FLAG)):  # Dynamo traces this; it calls no module code
                    return module.__dict__.get(NAME)
                if frame_of(1).f_code is not torchs_call:  # the program inspects its model
                    return dict_of(module).get(NAME)
                if roots._is_outermost() and roots._is_root(module):
                    return bound(call, module)
                if type(module) is linear:
                    return bound(product, module)
                return dict_of(module).get(NAME)

        not_for_dynamo(self._agent.torch, product)
        not_for_dynamo(self._agent.torch, Watching.__get__, callees=True)
        return Watching()

    def _is_outermost(self) -> bool:
        """Return whether this thread is neither in a root's call nor in a backward pass that recomputes."""
        agent = self._agent
        return ident() not in agent.in_forward and not agent.is_recomputing()

    def _measure(self, linear: Any, args: Any) -> None:
        torch = self._agent.torch
        try:
            attributes = dict_of(linear)
            inputs, outputs = attributes["in_features"], attributes["out_features"]
            if type(args[0]) is not torch.Tensor:
                return
            with torch._C.DisableTorchFunction():
                size = (args[0].numel() // inputs, inputs, outputs)
            if size[0] * inputs * outputs > self._largest[0] * self._largest[1] * self._largest[2]:
                self._largest = size
        except Exception:  # a layer that is called in an unusual way
            return

    def _is_root(self, module: Any) -> bool:
        """Return whether the module is a root to watch; number it if it is new.

        Modules without parameters (such as losses) are skipped, and so are modules that cannot be watched without
        calling the program's own code.
        """
        if self._roots.get(module) is not None:
            return True
        try:
            if len(self._roots.entries) >= MOST_ROOTS or not _is_open(type(module)) or not parameters(module):
                return False
            if "_is_replica" in dict_of(module):  # a DataParallel replica, for one pass
                return False
            self._roots.put(module, _Root(next(self._numbers)))
        except Exception as error:
            self._agent.give_up("forward", error)
            return False
        self._agent.change(self._agent.on_call, module)
        return True

    def _at_step(self) -> None:
        self._watched += 1
        if not self._watching or self._watched < WATCHED_STEPS:
            return
        self._agent.on_step.remove(self._at_step)
        self._settle()  # first: another thread may call its model meanwhile
        self._stop_watching()
        rows, inputs, outputs = self._largest
        if rows:
            self._agent.fact("matmul", {"rows": rows, "inputs": inputs, "outputs": outputs})
        self._tell()
        self._settle()  # again: for the roots of other threads that were found in between

    def _tell(self) -> None:
        """Report the roots not reported yet.

        This runs once it is known which of them train; if the program fails earlier, it covers every root called so
        far.
        """
        for module, root in self._roots.items():
            if not root.is_reported:
                root.is_reported = True
                self._seen(module, root.number)

    def _stop_watching(self) -> None:
        if class_dict_of(self._module).get(NAME) is self._slot_of_all:
            setattr(self._module, NAME, None)
        self._watching = False

    # ---- on the roots only ----

    def _settle(self) -> None:
        """Put the slot on the class of each root.

        A root's class may change: `parametrize` and `fully_shard` derive new ones.
        """
        for module, root in self._roots.items():
            if root.count is None:
                root.count = self._counting(module, root.number)
            cls = type(module)
            if not any(class_dict_of(base).get(NAME) is self._slot for base in mro_of(cls)) and _is_open(cls):
                type.__setattr__(cls, NAME, self._slot)  # not through the metaclass's own `__setattr__`
                self._classes.append(weakref.ref(cls))

    def _slot_of_roots(self) -> Any:
        """Return the descriptor for classes of roots.

        Other instances of these classes go through it, too, so it does as little as possible.
        """
        is_traced, flag = compiling(self._agent.torch)
        dynamo = self._agent.dynamo
        in_forward, in_backward = self._agent.in_forward, self._agent.in_backward
        is_outermost = self._is_outermost
        roots, call = self._roots.entries, self._call
        bound, held_by = types.MethodType, self._held_by
        frame_of, torchs_call = sys._getframe, self._torchs_call

        class Settled(_Slot):
            def __get__(self, module: Any, owner: Any = None) -> Any:
                if module is None:
                    return None
                if dynamo and (is_traced() or flag(FLAG)):  # as above
                    return module.__dict__.get(NAME)
                if (
                    id(module) in roots
                    and (not (in_forward or in_backward) or is_outermost())
                    and frame_of(1).f_code is torchs_call  # else the program inspects its model
                ):
                    return bound(call, module)
                return held_by(module).get(NAME)

        not_for_dynamo(self._agent.torch, Settled.__get__, callees=True)
        return Settled()

    @not_counted
    def _timed(self) -> Any:
        """Return the function that times a root's call; Python binds it to the module at each call."""
        agent = self._agent
        in_forward = agent.in_forward
        is_grad_enabled = agent.torch.is_grad_enabled
        mark = agent.mark
        put = agent.put
        roots = self._roots.entries
        called = self._called
        held_by = self._held_by

        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            attributes = held_by(self)
            plain = attributes.get(NAME)
            if plain is None:
                plain = self._call_impl
            entry = roots.get(id(self))
            if entry is None:  # removed since the slot was read
                return plain(*args, **kwargs)
            root = entry[1]
            thread = ident()
            if root.count is not None:
                root.count(_is_training(self, attributes), is_grad_enabled())
            if mark is not None:
                mark(MARK_FORWARD_START, self)
            begin = clock()
            try:
                in_forward.add(thread)
                return plain(*args, **kwargs)
            except BaseException as error:
                step_aside(error)
                raise
            finally:
                end = clock()
                in_forward.discard(thread)
                if mark is not None:
                    mark(MARK_FORWARD_END)
                training = attributes.get("training")
                if training is not True and training is not False:
                    training = _is_training(self, attributes)
                put((thread, FORWARD, begin, end, root.number, training, is_grad_enabled()))
                called[0] = True

        not_for_dynamo(agent.torch, call)
        return call

    def _at_tick(self) -> None:
        """Look for new roots if the known ones were not called; follow modules whose class has changed."""
        if self._watching:
            return
        if not self._called[0]:
            self.watch()
        else:
            self._settle()
        self._called[0] = False

    def _uninstall(self) -> None:
        taking_out(self._at_tick, self._agent.on_tick)()
        taking_out(self._at_step, self._agent.on_step)()
        if self._watching:
            self._stop_watching()
        for reference in self._classes:
            cls = reference()
            if cls is not None and class_dict_of(cls).get(NAME) is self._slot:
                type.__delattr__(cls, NAME)
        self._classes.clear()
        self._roots.entries.clear()


def _is_training(module: Any, held: dict[str, Any]) -> bool:
    """Return whether the module is in training mode, which a scripted module keeps in C++.

    A mode that is neither true nor false counts as true.
    """
    if "training" not in held and module_of(type(module)) == "torch.jit._script":
        return bool(module.training)
    mode = held.get("training", True)
    return bool(mode) if type(mode) in (bool, int) else True


def _is_open(cls: type) -> bool:
    """Return whether the slot can intercept calls of a class's instances without running its code."""
    for base in mro_of(cls):
        attributes = class_dict_of(base)
        if "__getattribute__" in attributes:
            return base is object
        if attributes.get(NAME) is not None and not isinstance(attributes[NAME], _Slot):
            return False
    return True
