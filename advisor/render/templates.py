"""Where the templates are, and how they are filled in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from advisor import units
from advisor.render.glossary import GLOSSARY
from profiler.printable import printable


def folder() -> Path:
    """Inside a wheel the templates lie in the package `advisor`; in a checkout, beside it."""
    package = Path(__file__).resolve().parent.parent
    return next(place for place in (package / "templates", package.parent / "templates") if place.is_dir())


def _visible(value: Any) -> Any:
    return printable(value, lines=True) if type(value) is str else value


def environment() -> Environment:
    """Everything is escaped and, where it would steer the reader's eye, made visible; a name that does not exist is an
    error."""
    made = Environment(
        loader=FileSystemLoader(folder()),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "seconds": units.seconds,
        "share": units.share,
        "size": units.size,
        "money": units.money,
        "digits": units.digits,
    }
    made.globals["glossary"] = GLOSSARY
    return made
