"""Render report.md: the report in short, for a pull request or a terminal."""

import re
from collections.abc import Sequence

from jinja2 import Template
from markupsafe import Markup

from advisor.compare.comparison import Comparison
from advisor.report.render.compare_view import sections
from advisor.report.render.section import Section
from advisor.report.render.templates import environment
from advisor.report.report import Report
from profiler.printable import printable

# Characters that start markup within a line; an underscore inside a word does not.
_SPECIAL = re.compile(r"[\\`*\[\]|~]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")

# Code between single backticks, without a bar: a bar would split a table, so such text is escaped instead.
_SPAN = re.compile(r"(?<!`)`([^`|]+)`(?!`)")


def render(report: Report, compared: Comparison | None = None) -> str:
    """Return GitHub-flavored Markdown in which external text is only text."""
    compared_sections = sections(compared) if compared else ()
    return _template("report.md").render(report=report, compared=compared_sections)


def render_sections(sections: Sequence[Section]) -> str:
    """Return the sections of a plan or a comparison as the same kind of Markdown."""
    return _template("sections.md").render(sections=sections)


def _template(name: str) -> Template:
    templates = environment()
    templates.filters |= {"text": text, "paragraph": paragraph, "code": code, "fence": fence}
    return templates.get_template(name)


def text(value: object) -> Markup:
    """Return the value on one line. Code between backticks stays code; all other markup and HTML is escaped."""
    parts = _SPAN.split(_line(value))
    return Markup("".join(f"`{part}`" if number % 2 else _escaped(part) for number, part in enumerate(parts)))


def paragraph(value: str) -> Markup:
    """Return the text on one line, with an empty line after it; nothing if there is no text."""
    return Markup(f"{text(value)}\n\n") if value else Markup()


def _escaped(part: str) -> str:
    return _SPECIAL.sub(r"\\\g<0>", part.replace("&", "&amp;").replace("<", "&lt;"))


def code(value: object) -> Markup:
    """Return a code span on one line."""
    line = _line(value)
    ticks = "`" * (_longest_run(line) + 1)
    inner = f" {line} " if line.startswith("`") or line.endswith("`") else line
    return Markup(f"{ticks}{inner}{ticks}")


def fence(value: str, language: str) -> Markup:
    """Return a code block whose fence is longer than any in the code."""
    ticks = "`" * max(3, _longest_run(value) + 1)
    return Markup(f"{ticks}{language}\n{printable(value.rstrip(), lines=True)}\n{ticks}")


def _line(value: object) -> str:
    return " ".join(printable(str(value)).split())


def _longest_run(value: str) -> int:
    return max((len(run) for run in re.findall("`+", value)), default=0)
