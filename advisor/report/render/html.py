"""Render report.html: one self-contained file that makes no network requests."""

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence

from markupsafe import Markup

from advisor.compare.comparison import Comparison
from advisor.report.one_step import OneStep
from advisor.report.render import charts, view
from advisor.report.render.compare_view import sections
from advisor.report.render.section import Page, Section
from advisor.report.render.templates import environment, folder
from advisor.report.report import Report
from profiler.version import __version__


def render(report: Report, compared: Comparison | None = None) -> str:
    """Return the whole page, with the findings of a comparison if there is one."""
    data: dict[str, object] = {}
    if report.charts:
        data["charts"] = charts.item(report.charts)
    if report.one_step:
        data["one-step"] = _steps(report.one_step)
    if report.what_if:
        data["memory"] = report.what_if.anatomy.as_data()
    scripts = {
        "vendor/uPlot.iife.min.js": report.charts,
        "charts.js": report.charts,
        "memory_model.js": report.what_if,
        "memory.js": report.what_if,
        "one_step.js": report.one_step,
        "operators.js": report.operators,
        "code.js": report.code and report.code.samples,
        "report.js": report,
    }
    return filled(
        "report.html",
        [*(["vendor/uPlot.min.css"] if report.charts else []), "report.css"],
        [name for name, needed_by in scripts.items() if needed_by],
        data,
        report=report,
        version=report.version,
        compared=sections(compared) if compared else (),
    )


def render_sections(sections: Sequence[Section], page: Page) -> str:
    """Return the page of a plan or a comparison, which runs no script."""
    menu = []
    for section in sections:
        menu += [(section.id, section.title, True), ("settings", "Settings", section.settings)]
    tiles = [[(*tile, None) for tile in section.tiles] for section in sections]
    return filled("sections.html", ["report.css"], sections=sections, page=page, menu=menu, tiles=tiles)


def filled(
    template: str,
    styles: Sequence[str],
    scripts: Sequence[str] = (),
    data: Mapping[str, object] | None = None,
    **shown: object,
) -> str:
    """Return a page with these style sheets, these scripts and the data that they read, by name.

    Its content security policy allows its own scripts and style sheet, by their hashes, and nothing else: no
    eval, no handler, no request, no image, no string that becomes HTML. Style attributes may be inline, because they
    set the widths of the bars' parts, with or without scripts; without requests they can leak nothing.
    """
    texts = [_as_read(_script(name)) for name in scripts]
    style = _as_read("".join(map(_text_of, styles)))
    policy = "default-src 'none'; base-uri 'none'; form-action 'none'; style-src 'unsafe-inline'"
    if texts:
        policy += (
            f"; script-src {' '.join(map(_hash, texts))}; style-src-elem {_hash(style)}; "
            "require-trusted-types-for 'script'; trusted-types 'none'"
        )
    context = {
        "version": __version__,
        "policy": policy,
        "style": Markup(style),
        "scripts": [Markup(text) for text in texts],
        "data": {name: Markup(_as_data(item)) for name, item in (data or {}).items()},
    }
    return environment().get_template(template).render(context | shown)


def _steps(found: OneStep) -> dict[str, object]:
    """Return the data that `one_step.js` draws; times are nanoseconds."""
    return {
        "labels": {name: view.part_label(name) for step in found.steps for name in step.kinds},
        "steps": [
            {
                "length": round(step.seconds * 1e9),
                "names": step.names,
                "kinds": step.kinds,
                "lanes": [{"name": lane.name, "levels": lane.levels, "items": lane.items} for lane in step.lanes],
                "places": {
                    stretch.part: [round(stretch.start * 1e9), round(stretch.seconds * 1e9)]
                    for stretch in step.stretches
                },
            }
            for step in found.steps
        ],
    }


def _script(name: str) -> str:
    """Return a script; a third-party script comes after its license, which every copy must include."""
    text = _text_of(name)
    return f"/*\n{_text_of('vendor/LICENSE')}*/\n{text}" if name.startswith("vendor/") else text


def _text_of(name: str) -> str:
    return (folder() / name).read_text(encoding="utf-8")


def _as_read(text: str) -> str:
    """Return the text as a browser reads it, so that the hash matches."""
    return text.replace("\r\n", "\n").replace("</script", "<\\/script")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _as_data(item: object) -> str:
    """Return JSON that cannot end the element it is in."""
    return json.dumps(item, separators=(",", ":")).replace("<", "\\u003c")
