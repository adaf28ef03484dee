"""Notice when the program has imported a module, without importing it.

This is the only agent code that runs before the program imports torch. A process that never imports it runs nothing
else.
"""

from __future__ import annotations

import sys
from _frozen_importlib_external import PathFinder

TYPE_CHECKING = False  # as in typing, which takes longer to import than this whole module
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_traceback = BaseException.__dict__["__traceback__"]


class _Watch:
    """A finder for `sys.meta_path`; not derived from importlib.abc, which is slow to import."""

    def __init__(self) -> None:
        self.callbacks: dict[str, Callable[[], None]] = {}

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Return the spec from the later finders, with its loader set to report the import.

        Programs look up specs without importing (`importlib.util.find_spec("torch")`), so only the import itself ends
        the watch.
        """
        callback = self.callbacks.pop(name, None)  # removed meanwhile: another such finder may call this one in turn
        if callback is None:
            return None
        try:
            finders = list(sys.meta_path)
            places = [place for place, finder in enumerate(finders) if finder is self]
            for finder in finders[places[0] + 1 if places else 0 :]:  # the earlier finders were called before this one
                if not hasattr(finder, "find_spec"):
                    continue
                spec = finder.find_spec(name, path, target)
                if spec is not None:
                    self._call_after_exec(name, spec.loader)
                    return spec
            return None
        finally:
            self.callbacks[name] = callback

    def _call_after_exec(self, name: str, loader: Any) -> None:
        """Wrap `exec_module` on this one loader instance, for one call."""
        plain = getattr(loader, "exec_module", None)
        if plain is None or isinstance(loader, type):  # a namespace or a built-in module, which nobody waits for
            return

        def exec_module(module: Any) -> None:
            del loader.exec_module  # an instance attribute: the class's method remains
            try:
                plain(module)
            except BaseException as error:  # as in tracebacks.step_aside, which is not loaded yet
                traceback = _traceback.__get__(error)
                if traceback is not None:
                    _traceback.__set__(error, traceback.tb_next)
                raise
            callback = self.callbacks.pop(name, None)
            if not self.callbacks and self in sys.meta_path:
                sys.meta_path.remove(self)
            if callback is not None:
                callback()

        try:
            loader.exec_module = exec_module
        except AttributeError:  # its class has `__slots__`
            return


_watch = _Watch()


def when_imported(name: str, callback: Callable[[], None]) -> None:
    """Call `callback` once `name` has been imported; at once if it already is."""
    if name in sys.modules:
        callback()
        return
    _watch.callbacks[name] = callback
    if _watch not in sys.meta_path:
        # After finders that the program has put first, and before the finder for `sys.path`.
        places = [place for place, finder in enumerate(sys.meta_path) if finder is PathFinder]
        sys.meta_path.insert(places[0] if places else 0, _watch)


def wait_for_torch(settings: str) -> None:
    """Install the agent once the program has imported torch; `settings` is the launcher's JSON."""

    def torch_is_there() -> None:
        try:
            import json

            from . import start

            start.begin_or_leave(json.loads(settings))
        except Exception:  # the program's `import torch` must succeed, with or without the agent
            return

    when_imported("torch", torch_is_there)


def forget() -> None:
    """Stop waiting for imports and remove the agent's finder from `sys.meta_path`."""
    _watch.callbacks.clear()
    if _watch in sys.meta_path:
        sys.meta_path.remove(_watch)
