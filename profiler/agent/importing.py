"""Notice the moment at which the program has imported a module, without importing it ourselves."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from typing import Any


class _Watch(MetaPathFinder):
    def __init__(self) -> None:
        self.callbacks: dict[str, Callable[[], None]] = {}

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        callback = self.callbacks.pop(name, None)
        if callback is None:
            return None
        if not self.callbacks and self in sys.meta_path:
            sys.meta_path.remove(self)
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                _call_after_exec(spec.loader, callback)
                return spec
        return None


def _call_after_exec(loader: Any, callback: Callable[[], None]) -> None:
    """Wrap exec_module on this one loader instance, for one call."""
    plain = loader.exec_module

    def exec_module(module: Any) -> None:
        del loader.exec_module  # an instance attribute: what remains is the class's own
        plain(module)
        callback()

    loader.exec_module = exec_module


_watch = _Watch()


def when_imported(name: str, callback: Callable[[], None]) -> None:
    """Call back once `name` has been imported; at once if it has been already."""
    if name in sys.modules:
        callback()
        return
    _watch.callbacks[name] = callback
    if _watch not in sys.meta_path:
        sys.meta_path.insert(0, _watch)


def forget() -> None:
    """Wait for nothing any more."""
    _watch.callbacks.clear()
    if _watch in sys.meta_path:
        sys.meta_path.remove(_watch)
