"""Load the rules, one module per rule.

There is no registry. Every module in this package is a rule, except `base` and modules whose name starts
with an underscore; those hold code that several rules share.
"""

import importlib
import pkgutil
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from types import ModuleType
from typing import Any

from advisor.metrics.base import Threshold
from advisor.rules.base import Area, Confidence, Rule, Severity, Source

# Users need not type-check their own rules, but a wrong type would prevent the report.
_TYPES: dict[str, Any] = {
    "title": str,
    "area": Area,
    "when": Callable,
    "then": Callable,
    "confidence": Confidence,
    "sources": tuple,
    "cap": Severity,
    "supersedes": tuple,
}

_SOURCE = re.compile(r"^\s*Source: (.+?)(?:, (https?://\S+))?$", re.MULTILINE)


@cache
def all_rules() -> tuple[Rule, ...]:
    """Return every rule of this package, sorted by area and id."""
    names = (info.name for info in pkgutil.iter_modules(__path__) if info.name != "base" and info.name[0] != "_")
    return in_order(rule_of(importlib.import_module(f"{__name__}.{name}")) for name in names)


def rule_of(module: ModuleType) -> Rule:
    """Return the `RULE` of a module, completed from the rest of the module.

    The id is the module's name, the page is its docstring without the source lines, and the thresholds are its
    `Threshold` constants. `when` and `then` are its functions of these names, unless `RULE` has others.

    Raises:
        TypeError: the module does not define a valid rule; the message says what is missing or wrong.
    """
    rule = getattr(module, "RULE", None)
    if not isinstance(rule, Rule):
        raise TypeError("it has no RULE = Rule(...)")
    docstring = module.__doc__ or ""
    page = _SOURCE.sub("", docstring)
    if not page.strip():
        raise TypeError("it has no docstring, which is the rule's page")
    functions: dict[str, Any] = {name: getattr(rule, name) or getattr(module, name, None) for name in ("when", "then")}
    rule = replace(rule, **functions)
    for name, expected_type in _TYPES.items():
        value = getattr(rule, name)
        if not isinstance(value, expected_type):
            raise TypeError(f"its {name} has type {type(value).__name__}, not {expected_type.__name__}")
    if rule.difficulty not in (1, 2, 3):
        raise TypeError("its difficulty is not 1, 2 or 3")
    for function, opening in ((rule.when, "If"), (rule.then, "then")):
        if not (function.__doc__ or "").startswith(opening):
            raise TypeError(f'the docstring of its {function.__name__} does not begin with "{opening}"')
    return replace(
        rule,
        id=module.__name__.rpartition(".")[2].replace("_", "-"),
        page=page,
        sources=(*rule.sources, *(Source(title, url or None) for title, url in _SOURCE.findall(docstring))),
        thresholds={name.lower(): value for name, value in vars(module).items() if isinstance(value, Threshold)},
    )


def in_order(rules: Iterable[Rule]) -> tuple[Rule, ...]:
    """Return the rules sorted by area, then by id."""
    return tuple(sorted(rules, key=lambda rule: (rule.area.value, rule.id)))
