"""tuned.toml, read again: the changes that a tuning has kept, to be made from outside in a run of their own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from advisor.rules.base import Intervention, Safety
from advisor.whole import whole
from profiler.errors import ProfilerError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


FILE = "tuned.toml"
"""Beside a recording that was made with its changes."""


def keep(file: Path, folder: Path) -> None:
    """Put a copy beside the recording that was made with it."""
    text = file.read_bytes()
    with whole(folder / FILE) as copy:
        copy.write_bytes(text)


def changes(folder: Path) -> tuple[Intervention, ...]:
    """What the recording in the folder was made with; nothing, of the program as it is."""
    file = folder / FILE
    if not file.exists():
        return ()
    return tuple(Intervention(name=each["name"], settings=each["settings"], safety=Safety.EXACT) for each in read(file))


def read(file: Path) -> tuple[dict[str, Any], ...]:
    """Each as profiler/agent/interventions takes it, {"name": ..., "settings": {...}}.

    Raises:
        ProfilerError: it is not of that form.
    """
    try:
        found = tomllib.loads(file.read_text(encoding="utf-8"))
        return tuple(_change(each) for each in found["change"]) if "change" in found else ()
    except OSError as error:
        raise ProfilerError(f"{file} cannot be read: {error.strerror or error}.", "Give the tuned.toml.") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ProfilerError(f"{file} is no tuned.toml: {error}.", "See: profile-train tune --help") from error


def _change(table: dict[str, Any]) -> dict[str, Any]:
    name, settings = table["name"], table.get("settings", {})
    if type(name) is not str or type(settings) is not dict:
        raise TypeError(f"the change {name!r} makes no sense")
    if name == "environment":
        # TOML has no null: a variable that is not to be there is an empty one.
        settings = {"variables": {key: str(value) or None for key, value in settings["variables"].items()}}
    return {"name": name, "settings": settings}
