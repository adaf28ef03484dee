"""Import packages that only an export needs."""

import importlib
from typing import Any

from profiler.errors import ProfilerError


def extra(module: str, what: str) -> Any:
    """Return a module of the extra `export`, which `what` needs.

    Raises:
        ProfilerError: the module is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0].replace("_", "-")
        raise ProfilerError(
            f"{what} needs {package}, which is not installed here ({error}).", "pip install 'profile-train[export]'"
        ) from error
