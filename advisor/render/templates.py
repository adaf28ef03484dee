"""Where the templates are, and how they are filled in."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from advisor import units, wording
from advisor.render.glossary import GLOSSARY
from profiler.printable import printable

_CODE = re.compile(r"`([^`\n]+)`")
_OPTION = re.compile(r"--[a-z][a-z-]{1,20}\b")


def folder() -> Path:
    """Inside a wheel the templates lie in the package `advisor`; in a checkout, beside it."""
    package = Path(__file__).resolve().parent.parent
    return next(place for place in (package / "templates", package.parent / "templates") if place.is_dir())


def _visible(value: Any) -> Any:
    return printable(value, lines=True) if type(value) is str else value


def _options(text: str) -> Markup:
    """Escaped, no option of a command cut in two."""
    safe = str(escape(printable(text, lines=True)))
    return Markup(_OPTION.sub(r'<span class="option">\g<0></span>', safe))


def _prose(text: str) -> Markup:
    """The same, and as code what stands between backticks."""
    return Markup(_CODE.sub(r"<code>\1</code>", str(_options(text))))


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
        "counted": units.count,
        "options": _options,
        "prose": _prose,
        "diagnosis": wording.diagnosis,
        "counsel": wording.counsel,
        "prospect": wording.prospect,
        "inside_other": wording.inside_other,
        "assumed": wording.assumed,
        "unanswered": wording.unanswered,
    }
    made.globals["glossary"] = GLOSSARY
    return made
