"""Find the templates and fill them in."""

import re
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from jinja2 import Environment, FileSystemBytecodeCache, FileSystemLoader, StrictUndefined
from jinja2.bccache import Bucket
from markupsafe import Markup, escape

from advisor import units
from advisor.report import pages, wording
from advisor.report.quantities import brief, meaning
from advisor.report.render import operators_view, view
from advisor.report.render.operator_charts import color, icicle, roofline
from advisor.report.render.tried import details, outcome, scale
from profiler.printable import printable
from profiler.version import __version__

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
    """Return the text escaped in the same way, with text between backticks as code."""
    return Markup(_CODE.sub(r"<code>\1</code>", str(_options(text))))


class _Compiled(FileSystemBytecodeCache):
    """A cache of compiled templates next to their sources, like Python's compiled modules; none if that is read-only.

    Compiling them takes longer than everything else in a report on a small trace.
    """

    def get_source_checksum(self, source: str) -> str:
        return super().get_source_checksum(f"{__version__} {jinja2.__version__} {source}")

    def dump_bytecode(self, bucket: Bucket) -> None:
        if not sys.dont_write_bytecode:
            with suppress(OSError):
                Path(self.directory).mkdir(exist_ok=True)
                super().dump_bytecode(bucket)


GLOSSARY = {
    "Mean step": "The mean time from one parameter update to the next, over the steady steps. Below it: the 95% "
    "confidence interval of the mean.",
    "Slowest 1%": "The 99th percentile: 1% of the steps take longer.",
    "Steps": "A step is one parameter update. Steady steps come after the warm-up and contain no evaluation, no "
    "saving and no epoch start; all times are from these steps.",
    "GPU utilization": "Share of the time in which at least one kernel ran on the GPU. A kernel on a single "
    "multiprocessor (SM) already counts, so the GPU may be much less busy than this.",
    "GPU-hours": "The duration of the run times the number of GPUs: what you pay for.",
    "Step after the plan": "The expected step time after all changes of the plan, except those listed for "
    "information. Below it: the 10th and the 90th percentile.",
    "Kind": "What a kernel or operator computes: matmuls, convolutions, attention, or memory-bound elementwise work.",
    "Calls": "Launches per step.",
    "Tensor cores": "Units of the GPU for matmuls in 16 bits or less; several times as fast as FP32.",
}
"""Meanings of less common words; metrics have their own."""

SEVERITIES = {"action": "Do this", "suggest": "Worth a try", "info": "For information"}


@cache
def environment() -> Environment:
    """Return the template environment.

    Everything is escaped, and misleading characters are made visible. An unknown name is an error.
    """
    templates = Environment(
        loader=FileSystemLoader(folder()),
        bytecode_cache=_Compiled(str(folder() / "__pycache__")),
        optimized=False,  # else the cache would keep the results of filters for constants
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters |= {
        **{name: getattr(units, name) for name in ("seconds", "share", "size", "money", "digits", "utc")},
        "counted": units.count,
        "opening": lambda text: f"{text[:1].upper()}{text[1:]}",
        "meaning": meaning,
        "brief": brief,
        "options": _options,
        "prose": _prose,
        "roofline": roofline,
        "icicle": icicle,
        "kind_color": color,
        "scale": scale,
        "details": details,
        "outcome": outcome,
    }
    templates.globals |= {
        "glossary": GLOSSARY,
        "severities": SEVERITIES,
        "pages": pages,
        "view": view,
        "wording": wording,
        "operators": operators_view,
    }
    return templates
