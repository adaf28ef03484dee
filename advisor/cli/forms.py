"""Output formats of a plan or comparison: text, JSON, HTML or Markdown, to stdout or a file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from advisor.cli.options import added
from profiler.errors import ProfilerError

if TYPE_CHECKING:
    from advisor.report.render.section import Page, Section

FORMATS = {"text": ".txt", "json": ".json", "html": ".html", "markdown": ".md"}


options = added(
    click.option(
        "--format",
        "form",
        metavar="FORMAT",
        type=click.Choice(list(FORMATS)),
        help=f"One of {', '.join(FORMATS)}.  [by --out's ending]",
    ),
    click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Write it to this file."),
)
"""The options of a command with several output formats: `form` and `out`."""


def give(
    sections: Sequence[Section], as_json: Callable[[], str], page: Page, form: str | None, out: Path | None
) -> None:
    """Write the sections in the requested format, or in the format of the file's extension.

    Raises:
        ProfilerError: the file could not be written.
    """
    if form is None:
        form = next((name for name, ending in FORMATS.items() if out and out.suffix.lower() == ending), "text")
    if out is None and form == "text":
        from rich.console import Console

        from advisor.report.render.section_text import show

        show(sections, Console(highlight=False))
        return
    text = _rendered(sections, as_json, page, form)
    if out is None:
        click.echo(text, nl=False)
        return
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ProfilerError(
            f"{out} could not be written: {error.strerror or error}.", "Give --out in a folder that can be written to."
        ) from error


def _rendered(sections: Sequence[Section], as_json: Callable[[], str], page: Page, form: str) -> str:
    if form == "json":
        return as_json()
    if form == "markdown":
        from advisor.report.render import markdown

        return markdown.render_sections(sections)
    if form == "html":
        from advisor.report.render import html

        return html.render_sections(sections, page)
    from advisor.report.render.section_text import written

    return written(sections)
