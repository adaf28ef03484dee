"""Render report.html: one file that holds everything it needs and makes no network requests."""

import base64
import hashlib
import json
from collections.abc import Sequence

from markupsafe import Markup

from advisor.compare.comparison import Comparison
from advisor.report.one_step import OneStep
from advisor.report.render import charts
from advisor.report.render.compare_view import sections
from advisor.report.render.section import Page, Section
from advisor.report.render.templates import environment, folder
from advisor.report.render.view import View
from advisor.report.render.what_if import PARTS, controls
from advisor.report.report import Report
from profiler.version import __version__

# Bars are drawn by inline styles; without requests they can tell nobody anything.
_WITHOUT_SCRIPTS = "default-src 'none'; base-uri 'none'; form-action 'none'; style-src 'unsafe-inline'"


def render(report: Report, compared: Comparison | None = None) -> str:
    """Return the whole page, with what a comparison found if there is one.

    Its content security policy allows its own scripts and style sheet, known by their hashes, and nothing else: no
    eval, no handler, no request, no image, no string that becomes HTML. Style attributes may be inline, because they
    set the widths of the bars' parts, with or without scripts; without requests they can leak nothing.
    """
    view = View(report)
    item = charts.item(report.charts) if report.charts else None
    memory = as_data(report.what_if.anatomy.as_data()) if report.what_if else None
    found = report.one_step
    # uPlot's license must be in every copy of it: each page is one.
    uplot = f"/*\n{text_of('vendor/LICENSE')}*/\n{text_of('vendor/uPlot.iife.min.js')}"
    drawing = [uplot, text_of("charts.js")] if item else []
    needed_by = {
        "memory_model.js": memory,
        "memory.js": memory,
        "one_step.js": found,
        "operators.js": report.operators,
        "code.js": report.code and report.code.samples,
        "report.js": report,
    }
    scripts = [as_read(script) for script in (*drawing, *(text_of(name) for name, by in needed_by.items() if by))]
    style = as_read((text_of("vendor/uPlot.min.css") if item else "") + text_of("report.css"))
    return (
        environment()
        .get_template("report.html")
        .render(
            report=report,
            version=report.version,
            compared=sections(compared) if compared else (),
            view=view,
            controls=controls(report.what_if) if report.what_if else (),
            memory_parts=PARTS,
            policy=policy(scripts, style),
            style=Markup(style),
            scripts=[Markup(script) for script in scripts],
            charts=Markup(as_data(item)) if item else None,
            one_step=Markup(as_data(_steps(found, view))) if found else None,
            memory_model=Markup(memory) if memory else None,
        )
    )


def render_sections(sections: Sequence[Section], page: Page) -> str:
    """Return the page of a plan or a comparison, which runs no script."""
    template = environment().get_template("sections.html")
    style = Markup(text_of("report.css"))
    return template.render(sections=sections, page=page, policy=_WITHOUT_SCRIPTS, style=style, version=__version__)


def _steps(found: OneStep, view: View) -> dict[str, object]:
    """Return the data that `one_step.js` draws; times are nanoseconds."""
    return {
        "labels": {name: view.part_label(name) for step in found.steps for name in step.kinds},
        "steps": [
            {
                "length": round(step.seconds * 1e9),
                "names": step.names,
                "kinds": step.kinds,
                "lanes": [{"name": lane.name, "levels": lane.levels, "items": lane.items} for lane in step.lanes],
                "places": {each.part: [round(each.start * 1e9), round(each.seconds * 1e9)] for each in step.stretches},
            }
            for step in found.steps
        ],
    }


def policy(scripts: Sequence[str], style: str) -> str:
    """Return the content security policy of a page with these scripts and this style sheet."""
    return (
        "default-src 'none'; base-uri 'none'; form-action 'none'; style-src 'unsafe-inline'; "
        f"script-src {' '.join(map(_hash, scripts))}; style-src-elem {_hash(style)}; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    )


def text_of(name: str) -> str:
    """Return the text of a template's file."""
    return (folder() / name).read_text(encoding="utf-8")


def as_read(text: str) -> str:
    """Return the text as a browser reads it, so that the hash matches."""
    return text.replace("\r\n", "\n").replace("</script", "<\\/script")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def as_data(item: dict[str, object]) -> str:
    """Return JSON that cannot end the element it is in."""
    return json.dumps(item, separators=(",", ":")).replace("<", "\\u003c")
