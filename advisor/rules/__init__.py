"""The rules, one file each. Nothing is registered: every module here with a `RULE` is one."""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import replace
from functools import cache

from advisor.rules.base import Rule


@cache
def all_rules() -> tuple[Rule, ...]:
    """Every rule of this package, by tier and id."""
    rules = []
    for info in pkgutil.iter_modules(__path__):
        if info.name == "base":
            continue
        module = importlib.import_module(f"{__name__}.{info.name}")
        rules.append(replace(module.RULE, id=info.name.replace("_", "-"), page=module.__doc__ or ""))
    return tuple(sorted(rules, key=lambda rule: (rule.tier.value, rule.id)))
