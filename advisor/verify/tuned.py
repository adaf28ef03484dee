"""Read tuned.toml: the changes that a tuning kept, applied from outside in a separate run."""

from pathlib import Path
from typing import Any

from msgspec import MsgspecError, Struct, toml

from advisor.atomic_write import keep as keep_in
from advisor.rules.base import Intervention, Safety
from profiler import ours
from profiler.errors import ProfilerError

FILE = "tuned.toml"
"""Copied next to a recording that was made with its changes."""


VARIABLES = frozenset(
    (
        *("CUDA_LAUNCH_BLOCKING", "TORCH_DISTRIBUTED_DEBUG", "OMP_NUM_THREADS", "MKL_NUM_THREADS"),
        *("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"),
    )
)
"""Variables that a tuned.toml may set.

The file may come from anyone, and other variables, such as LD_PRELOAD, run code.
"""


def keep(file: Path, folder: Path) -> None:
    """Copy the file next to the recording that was made with it."""
    keep_in(folder, FILE, file.read_bytes())


def changes(folder: Path) -> tuple[Intervention, ...]:
    """Return the changes that the recording in the folder was made with; empty for the unchanged program."""
    file = ours.where(folder, FILE)
    if not file.exists():
        return ()
    return tuple(
        Intervention(name=change["name"], settings=change["settings"], safety=Safety.EXACT) for change in read(file)
    )


def read(file: Path) -> tuple[dict[str, Any], ...]:
    """Return the changes in a file in the form that profiler/agent/interventions needs.

    Each is {"name": ..., "settings": {...}}.

    Raises:
        ProfilerError: the file cannot be read, or is not of that form.
    """
    try:
        return tuple(map(_change, toml.decode(file.read_text(encoding="utf-8"), type=_Tuned).change))
    except OSError as error:
        raise ProfilerError(f"{file} cannot be read: {error.strerror or error}.", "Give the tuned.toml.") from error
    except (ValueError, KeyError, TypeError, AttributeError, MsgspecError) as error:
        raise ProfilerError(f"{file} is not a tuned.toml: {error}.", "See: profile-train tune --help") from error


class _Change(Struct):
    name: str
    settings: dict[str, Any] = {}


class _Tuned(Struct):
    change: list[_Change] = []


def _change(made: _Change) -> dict[str, Any]:
    settings = made.settings
    if made.name == "environment":
        # TOML has no null: an empty string means that the variable is unset.
        if unknown_variables := sorted(set(settings["variables"]) - VARIABLES):
            raise ValueError(f"it must not set {', '.join(unknown_variables)}")
        settings = {"variables": {key: str(value) or None for key, value in settings["variables"].items()}}
    return {"name": made.name, "settings": settings}
