"""Update the pictures of the report in docs/images: `python tests/support/screenshots.py RUN`. Needs chromium.

RUN is the folder of a recorded run: name that run below the picture. The memory sliders need a GPU: their picture shows
the report that the tests use.
"""

from __future__ import annotations

import base64
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from browser import opened, started
from golden_report import golden, tried

from advisor.report.render import html

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "images"
LARGEST = 300_000
"""Maximum size of a picture, in bytes."""

ABOVE = 16
"""Space above a picture's first element, in pixels."""

# Name, color scheme, width and height in pixels, first element.
PICTURES = (
    ("report", "light", 1280, 1700, ".hero"),
    ("report-dark", "dark", 1280, 1700, ".hero"),
    ("report-phone", "light", 390, 1500, ".hero"),
    ("report-memory", "light", 1280, 700, "#what-if-title"),
)


def pictures(run: Path) -> dict[str, bytes]:
    """Return the PNG pictures by name, most of them of the run's report."""
    first, *others = golden().advice
    report = replace(golden(), advice=(replace(first, verified=tried().advice[0].verified), *others))
    taken = {}
    browser = started()
    try:
        with tempfile.TemporaryDirectory() as folder:
            page = Path(folder) / "report.html"
            page.write_text(html.render(report), encoding="utf-8")
            for name, scheme, width, height, begin in PICTURES:
                shown = page if name == "report-memory" else run.absolute() / "report.html"
                opened(browser, shown.as_uri(), width=width, scheme=scheme)
                find = "return document.querySelector(arguments[0]).getBoundingClientRect().top + scrollY"
                top = max(0, browser.execute_script(find, begin) - ABOVE)
                clip = {"x": 0, "y": top, "width": width, "height": height, "scale": 1}
                settings = {"format": "png", "captureBeyondViewport": True, "clip": clip}
                shot = browser.execute_cdp_cmd("Page.captureScreenshot", settings)
                taken[name] = base64.b64decode(shot["data"])
    finally:
        browser.quit()
    return taken


def main() -> int:
    """Write the pictures; return 1 if one is too large."""
    FOLDER.mkdir(exist_ok=True)
    for name, picture in pictures(Path(sys.argv[1])).items():
        (FOLDER / f"{name}.png").write_bytes(picture)
        print(f"{name}.png: {len(picture):,} bytes")
        if len(picture) > LARGEST:
            print(f"{name}.png is too large", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
