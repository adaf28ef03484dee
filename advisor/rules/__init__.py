"""The rules, one file each. Nothing is registered: every module here is one, but `base` and those
that begin with an underscore, which hold what several rules share.
"""

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
        if info.name == "base" or info.name.startswith("_"):
            continue
        module = importlib.import_module(f"{__name__}.{info.name}")
        rules.append(replace(module.RULE, id=info.name.replace("_", "-"), page=module.__doc__ or ""))
    return tuple(sorted(rules, key=lambda rule: (rule.tier.value, rule.id)))
