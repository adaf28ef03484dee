"""Import modules of the benchmarks as their scripts do."""

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@contextmanager
def imports(*folders: str) -> Iterator[Callable[[str], ModuleType]]:
    """Yield a function that imports by name from these folders under benchmarks/; forget the imported modules
    afterwards.

    Several benchmarks have a module of the same name, and one process runs the tests of all.
    """
    before, path = set(sys.modules), list(sys.path)
    sys.path[:0] = [str(BENCHMARKS / folder) for folder in folders]
    try:
        yield importlib.import_module
    finally:
        sys.path[:] = path
        for name in set(sys.modules) - before:
            if str(getattr(sys.modules[name], "__file__", "")).startswith(str(BENCHMARKS)):
                del sys.modules[name]
