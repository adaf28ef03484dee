"""Generate the pages of rules and metrics from their own code and docstrings."""

import difflib
import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any

from advisor.judging.calibration import Calibration
from advisor.metrics import all_metrics
from advisor.metrics.base import Metric
from advisor.rules.base import Area, Rule
from profiler.errors import ProfilerError

AREAS = {
    Area.VALIDITY: "Validity and hardware",
    Area.STALLS: "Data and host stalls",
    Area.PRECISION: "Precision",
    Area.KERNELS: "Kernels and optimizer",
    Area.MEMORY: "Memory",
    Area.DISTRIBUTED: "Distributed training",
    Area.OFFLOAD: "Offloading",
    Area.COST: "Cost and reliability",
    Area.MODEL: "Model and goal",
}

DIFFICULTIES = {1: "a line or a setting", 2: "a few lines", 3: "a rework"}

UNITS = {
    None: "a fact, not a number",
    "1": "a share or ratio",
    "count": "a count",
    "s": "seconds",
    "us": "microseconds",
    "h": "hours",
    "B": "bytes",
    "B/s": "bytes per second",
    "W": "watts",
    "J": "joules",
    "currency": "the currency of `--gpu-price`",
}


def explained(name: str, rules: Sequence[Rule], past: Calibration | None = None) -> str:
    """Return the page of the rule or metric with that name; a rule's page includes its record of trials.

    Dashes and underscores are interchangeable.

    Raises:
        ProfilerError: there is none; the message names the nearest ones.
    """
    pages = {metric.name: metric_page(metric) for metric in all_metrics()} | {
        rule.id: page(rule, (past or Calibration()).story(rule.id)) for rule in rules
    }
    query = name.strip().lower()
    for spelling in (query, query.replace("_", "-"), query.replace("-", "_")):
        if spelling in pages:
            return pages[spelling]
    matches = [rule.id for rule in rules if re.search(rf"\b{re.escape(query)}\b", rule.page + consequence(rule))]
    suggestions = matches or difflib.get_close_matches(query, pages, cutoff=0.6)
    hint = f"Did you mean {' or '.join(suggestions)}? " if suggestions else ""
    raise ProfilerError(f"No rule or metric is called {name!r}.", f"{hint}List the rules: profile-train rules")


def condition(rule: Rule) -> str:
    """Return the If of a rule in a sentence, from the docstring of its `when`."""
    return _sentence(rule.when, "if")


def consequence(rule: Rule) -> str:
    """Return the Then of a rule in a sentence, from the docstring of its `then`."""
    return _sentence(rule.then, "then")


def wrong_when(rule: Rule) -> str:
    """Return when the advice does not hold: the "Wrong when:" paragraph of the page, or an empty text."""
    return " ".join(
        paragraph.split(":", 1)[1].strip()
        for paragraph in paragraphs(rule.page)
        if paragraph.lower().startswith("wrong when:")
    )


def explanation(rule: Rule) -> tuple[str, ...]:
    """Return the page's paragraphs other than "Wrong when:"."""
    return tuple(paragraph for paragraph in paragraphs(rule.page) if not paragraph.lower().startswith("wrong when:"))


def page(rule: Rule, past: str = "") -> str:
    """Return the page of one rule with its record of trials, as Markdown that also reads well as plain text."""
    parts = [
        f"## {rule.id}: {rule.title}",
        *explanation(rule),
        f"**If** {condition(rule)}",
        f"**Then** {consequence(rule)}",
    ]
    if caveat := wrong_when(rule):
        parts.append(f"**Wrong when** {caveat}")
    parts.append(
        f"**Area** {AREAS[rule.area]}. **Effort** {DIFFICULTIES[rule.difficulty]}. "
        f"**Gain model** {rule.confidence.name.lower().replace('_', ' ')}, trusted {rule.confidence.value:g}. "
        f"**Strongest advice** {rule.cap.value}."
    )
    if past:
        parts.append(f"**Record** {past}")
    if rule.supersedes:
        parts.append(f"**Silences** {', '.join(rule.supersedes)}")
    if rule.thresholds:
        lines = [
            f"- `{name} = {threshold.value:g}`{f', here {rule.limits[name]:g}' if name in rule.limits else ''}: "
            f"{threshold.why}"
            for name, threshold in rule.thresholds.items()
        ]
        hint = f"set under `[rules.{rule.id}]` in the file of `--config`"
        parts.append(f"**Limits**, {hint}\n\n" + "\n".join(lines))
    sources = [f"- [{source.title}]({source.url})" if source.url else f"- {source.title}" for source in rule.sources]
    if sources:
        parts.append("**Sources**\n\n" + "\n".join(sources))
    return "\n\n".join(parts) + "\n"


def metric_page(metric: Metric[Any]) -> str:
    """Return the page of one metric, in the same format."""
    return f"## {metric.name}: {metric.label}\n\n{meaning(metric)}\n\n**Unit** {unit(metric)}\n"


def meaning(metric: Metric[Any]) -> str:
    """Return the meaning of a metric, from its docstring."""
    return " ".join(paragraphs(metric.doc))


def unit(metric: Metric[Any]) -> str:
    """Return the unit of a metric in words."""
    return UNITS.get(metric.unit, str(metric.unit))


def paragraphs(text: str) -> list[str]:
    """Return the paragraphs of a docstring, one line each."""
    return [" ".join(part.split()) for part in re.split(r"\n\s*\n", inspect.cleandoc(text)) if part.strip()]


def _sentence(function: Callable[..., Any], opening: str) -> str:
    """Return the first paragraph of a docstring, without the leading If or Then and the ellipsis that joins them."""
    text = next(iter(paragraphs(function.__doc__ or "")), "").strip(" .,\u2026")
    first_word, _, rest = text.partition(" ")
    return f"{rest if first_word.lower().strip(',') == opening else text}."
