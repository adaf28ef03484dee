"""report.html: one file that holds all it needs and asks the network for nothing."""

from __future__ import annotations

import base64
import hashlib
import json

from bokeh.resources import Resources
from markupsafe import Markup

from advisor.render import charts
from advisor.render.templates import environment, folder
from advisor.render.view import View
from advisor.report import Report, gain_text


def render(report: Report) -> str:
    """The whole page.

    Its content security policy runs our scripts, known by their hashes, and nothing else: no eval, no handler, no
    request, no image. Styles may be inline, because Bokeh writes its own into each chart, never the same twice; without
    requests they can tell nobody anything. Trusted types cannot be required: Bokeh's tooltips and zoom would end.
    """
    item = charts.item(report.charts) if report.charts else None
    memory = _data(report.what_if.anatomy.as_data()) if report.what_if else None
    scripts = [_plain(Resources(mode="inline", components=["bokeh"]).js_raw[0])] if item else []
    scripts += [_script(name) for name in (*(("memory_model.js", "memory.js") if memory else ()), "report.js")]
    policy = (
        "default-src 'none'; base-uri 'none'; form-action 'none'; style-src 'unsafe-inline'; "
        f"script-src {' '.join(map(_hash, scripts))}"
    )
    return (
        environment()
        .get_template("report.html")
        .render(
            report=report,
            version=report.version,
            view=View(report),
            gain=gain_text,
            policy=policy,
            style=Markup(_text("report.css")),
            scripts=[Markup(script) for script in scripts],
            charts=Markup(_data(item)) if item else None,
            memory_model=Markup(memory) if memory else None,
        )
    )


def _text(name: str) -> str:
    return (folder() / name).read_text(encoding="utf-8")


def _script(name: str) -> str:
    return _plain(_text(name))


def _plain(script: str) -> str:
    """As a browser reads it, so that the hash agrees."""
    return script.replace("\r\n", "\n").replace("</script", "<\\/script")


def _hash(script: str) -> str:
    digest = hashlib.sha256(script.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _data(item: dict[str, object]) -> str:
    """JSON that cannot end the element it stands in."""
    return json.dumps(item, separators=(",", ":")).replace("<", "\\u003c")
