"""Notice when the program has imported a module, without importing it.

This is the only agent code that runs before the program imports torch. A process that never imports it pays for nothing
more.
"""

from __future__ import annotations

import sys
from _frozen_importlib_external import PathFinder

TYPE_CHECKING = False  # as in typing, whose import takes longer than all of this
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_traceback = BaseException.__dict__["__traceback__"]


class _Watch:
    """A finder for `sys.meta_path`; not derived from importlib.abc, whose import takes long."""

    def __init__(self) -> None:
        self.callbacks: dict[str, Callable[[], None]] = {}

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Return the spec that the later finders give, with its loader set to report the import.

        Programs ask for specs without importing (`importlib.util.find_spec("torch")`), so only the import itself ends
        the watch.
        """
        callback = self.callbacks.pop(name, None)  # not there meanwhile: another such finder may ask us in turn
        if callback is None:
            return None
        try:
            finders = list(sys.meta_path)
            mine = [place for place, finder in enumerate(finders) if finder is self]
            for finder in finders[mine[0] + 1 if mine else 0 :]:  # those before were asked before us
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
        if plain is None or isinstance(loader, type):  # a namespace or a built-in module: none of those we wait for
            return

        def exec_module(module: Any) -> None:
            del loader.exec_module  # an instance attribute: what remains is the class's own
            try:
                plain(module)
            except BaseException as error:  # as tracebacks.step_aside, of which nothing is loaded yet
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
        except AttributeError:  # it has slots
            return


_watch = _Watch()


def when_imported(name: str, callback: Callable[[], None]) -> None:
    """Call `callback` once `name` has been imported; at once if it already is."""
    if name in sys.modules:
        callback()
        return
    _watch.callbacks[name] = callback
    if _watch not in sys.meta_path:
        # After finders that the program has put first, and before the one that finds what is on the path.
        places = [place for place, finder in enumerate(sys.meta_path) if finder is PathFinder]
        sys.meta_path.insert(places[0] if places else 0, _watch)


def wait_for_torch(settings: str) -> None:
    """Install the agent once the program has imported torch; `settings` is the launcher's JSON."""

    def torch_is_there() -> None:
        try:
            import json

            from . import start

            start.begin_or_leave(json.loads(settings))
        except Exception:  # `import torch` is the program's: it succeeds, with us or without
            return

    when_imported("torch", torch_is_there)


def forget() -> None:
    """Stop waiting for imports: nothing of ours stays in `sys.meta_path`."""
    _watch.callbacks.clear()
    if _watch in sys.meta_path:
        sys.meta_path.remove(_watch)
