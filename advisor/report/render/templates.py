"""Find the templates and fill them in."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from advisor import units
from advisor.report import wording
from advisor.report.render.glossary import GLOSSARY
from profiler.printable import printable

_CODE = re.compile(r"`([^`\n]+)`")
_OPTION = re.compile(r"--[a-z][a-z-]{1,20}\b")


def folder() -> Path:
    """Return the folder of the templates: inside `advisor` in a wheel, next to it in a checkout."""
    package = Path(__file__).resolve().parents[2]
    return next(place for place in (package / "templates", package.parent / "templates") if place.is_dir())


def _visible(value: Any) -> Any:
    return printable(value, lines=True) if type(value) is str else value


def _options(text: str) -> Markup:
    """Return the text escaped, with command options that cannot break across lines."""
    safe = str(escape(printable(text, lines=True)))
    return Markup(_OPTION.sub(r'<span class="option">\g<0></span>', safe))


def _prose(text: str) -> Markup:
    """Return the same, with text between backticks as code."""
    return Markup(_CODE.sub(r"<code>\1</code>", str(_options(text))))


def environment() -> Environment:
    """Return the template environment.

    Everything is escaped, and characters that would mislead the reader's eye become visible. An unknown name is an
    error.
    """
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
        "counted": units.count,
        "options": _options,
        "prose": _prose,
        "diagnosis": wording.diagnosis,
        "counsel": wording.counsel,
        "busy": wording.busy,
        "prospect": wording.prospect,
        "inside_other": wording.inside_other,
        "assumed": wording.assumed,
        "unanswered": wording.unanswered,
    }
    made.globals["glossary"] = GLOSSARY
    return made
