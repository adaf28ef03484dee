"""Read the program's objects without calling any of their code.

A class of the program may override `__len__`, `__hash__`, `__eq__`, `__getattr__`, `parameters` or `items`, and draw
random numbers there. So attributes are read from the instance dictionary, containers through the methods of the
built-in types, and objects are compared by identity.
"""

from __future__ import annotations

import sys
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

name_of: Callable[[type], str] = type.__dict__["__name__"].__get__
qualified_name_of: Callable[[type], str] = type.__dict__["__qualname__"].__get__
bases_of: Callable[[type], tuple[type, ...]] = type.__dict__["__bases__"].__get__
mro_of: Callable[[type], tuple[type, ...]] = type.__dict__["__mro__"].__get__
class_dict_of: Callable[[type], Any] = type.__dict__["__dict__"].__get__
_module_of: Callable[[type], Any] = type.__dict__["__module__"].__get__

_DESCRIPTORS_IN_C = (types.GetSetDescriptorType, types.MemberDescriptorType)  # the latter: of modules, for example


def module_of(cls: type) -> str:
    """Return the name of the module that defines a class; "" if it is unknown."""
    try:
        name = _module_of(cls)
    except AttributeError:
        return ""
    return name if type(name) is str else ""


def dict_of(instance: Any) -> dict[str, Any]:
    """Return the instance dictionary; an empty one if there is none, or if the class makes `__dict__` a property."""
    for cls in mro_of(type(instance)):
        descriptor = class_dict_of(cls).get("__dict__")
        if descriptor is not None:
            attributes = descriptor.__get__(instance) if type(descriptor) in _DESCRIPTORS_IN_C else None
            return attributes if type(attributes) is dict else {}
    return {}


def is_a(instance: Any, cls: type) -> bool:
    """Return whether the instance's real class derives from `cls`.

    `isinstance` would also consult `__class__` and the metaclass.
    """
    return type.__subclasscheck__(cls, type(instance))


class ByIdentity:
    """A mapping from living objects to values that holds its keys weakly and never hashes or compares them."""

    def __init__(self) -> None:
        self.entries: dict[int, tuple[weakref.ref[Any], Any]] = {}
        """Reference and value, by `id` of the key. A direct look-up takes a third of the time of `get`, and is correct
        while the key is alive."""

    def get(self, key: Any, default: Any = None) -> Any:
        """Return the value of exactly this object."""
        entry = self.entries.get(id(key))
        return default if entry is None or entry[0]() is not key else entry[1]

    def put(self, key: Any, value: Any) -> None:
        """Set the value of an object.

        Raises:
            TypeError: the object takes no weak references.
        """
        number, entries = id(key), self.entries

        def forget(reference: Any) -> None:
            entry = entries.get(number)
            if entry is not None and entry[0] is reference:
                del entries[number]

        entries[number] = weakref.ref(key, forget), value

    def items(self) -> Iterator[tuple[Any, Any]]:
        """Yield the objects that are still alive, with their values."""
        for reference, value in list(self.entries.values()):
            key = reference()
            if key is not None:
                yield key, value


def inside(value: Any) -> list[tuple[Any, Any]]:
    """Return the items of a dictionary, list or tuple as stored, with their keys or indexes.

    Derived classes count, and so does UserDict, the base class of transformers' batches. For anything else, the list is
    empty.
    """
    classes = mro_of(type(value))
    if dict in classes:
        return list(dict.items(value))
    if tuple in classes:
        return list(enumerate(tuple.__iter__(value)))
    if list in classes:
        return list(enumerate(list.__iter__(value)))
    collections = sys.modules.get("collections")
    if collections is not None and collections.UserDict in classes:
        data = dict_of(value).get("data")
        return list(data.items()) if type(data) is dict else []
    return []


# ---- tensors ----


class TensorFacts(NamedTuple):
    """Properties of a tensor, as torch reports them."""

    elements: int
    bytes: int
    held: int
    """Bytes in this process; for a DTensor, the bytes of its shard."""
    dtype: str
    device: Any
    trainable: bool
    floating: bool


def tensor(value: Any) -> TensorFacts | None:
    """Return the properties of a tensor; None for anything else.

    Also None if its class has a `__torch_dispatch__` from outside torch, which torch may call even for the size.
    """
    if not _is_torchs(value):
        return None
    torch = sys.modules["torch"]
    base = torch._C.TensorBase
    with torch._C.DisableTorchFunction():
        elements = base.numel(value)
        total_bytes = held_bytes = elements * base.element_size(value)
        descriptor = class_dict_of(type(value)).get("_local_tensor")
        if type(descriptor) is types.MemberDescriptorType:
            shard = tensor(descriptor.__get__(value))
            held_bytes = total_bytes if shard is None else shard.held
        return TensorFacts(
            elements,
            total_bytes,
            held_bytes,
            str(base.dtype.__get__(value)).replace("torch.", ""),
            base.device.__get__(value),
            base.requires_grad.__get__(value),
            base.is_floating_point(value),
        )


def gradient(value: Any) -> Any:
    """Return a leaf tensor's gradient; None if it has none. For other tensors, torch would warn."""
    if not _is_torchs(value):
        return None
    torch = sys.modules["torch"]
    base = torch._C.TensorBase
    with torch._C.DisableTorchFunction():
        return base.grad.__get__(value) if base.is_leaf.__get__(value) else None


def _is_torchs(value: Any) -> bool:
    """Return whether a value is a tensor without a `__torch_dispatch__` from outside torch."""
    if not is_a(value, sys.modules["torch"].Tensor):
        return False
    classes = (cls for cls in mro_of(type(value)) if "__torch_dispatch__" in class_dict_of(cls))
    return all(f"{module_of(cls)}.".startswith("torch.") for cls in classes)


def values(held: Any) -> list[Any]:
    """Return the values in a dictionary, list or tuple, or in an instance of a derived class."""
    return [value for _, value in inside(held)]


# ---- modules ----


def _held(module: Any, kind: str) -> list[tuple[str, Any]]:
    """Return a module's `_modules`, `_parameters` or `_buffers` with their names, without those that are None."""
    members: Any = dict_of(module).get(kind)
    items: list[tuple[str, Any]] = []
    if is_a(members, dict):
        items = list(dict.items(members))
    elif module_of(type(members)) == "torch.jit._script":  # torch's view of data held in C++
        items = list(members.items())
    return [(name, member) for name, member in items if member is not None]


def children(module: Any) -> list[Any]:
    """Return the modules directly inside a module."""
    return [child for _, child in _held(module, "_modules")]


def child(module: Any, name: str) -> Any:
    """Return the direct child with that name; None if there is none."""
    return dict(_held(module, "_modules")).get(name)


def modules(module: Any) -> list[Any]:
    """Return the modules that `Module.modules` yields, without one stack frame per level."""
    submodules: list[Any] = []
    seen: set[int] = set()
    pending = [module]
    while pending:
        submodule = pending.pop()
        if id(submodule) in seen:
            continue
        seen.add(id(submodule))
        submodules.append(submodule)
        pending += [inner for _, inner in reversed(_held(submodule, "_modules"))]
    return submodules


def parameters(module: Any, kind: str = "_parameters") -> list[Any]:
    """Return the parameters (or "_buffers") of a module and of the modules inside it, without duplicates."""
    by_id = {id(value): value for submodule in modules(module) for _, value in _held(submodule, kind)}
    return list(by_id.values())
