"""The configuration file: goals, limits of rules, rules of one's own. What is not known or of a wrong type is refused.

    opt_in = ["precision-fp8"]      # may be advised as strongly as its gain deserves
    rules_path = "tools/rules"      # beside this file
    [goals]
    gpu_price = 2.5
    [rules.data-workers-zero]
    min_wait = 0.08
    [rules.channels-last]
    enabled = false

In a pyproject.toml the same under [tool.profile-train].
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from advisor.declared import READERS
from advisor.metrics import all_metrics
from advisor.metrics.base import Goals
from advisor.own_rules import RuleSet, load
from advisor.rules.base import Rule, Severity
from profiler.errors import ProfilerError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PYPROJECT = "pyproject.toml"
KEYS = ("opt_in", "rules_path", "goals", "rules")


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """What holds for a report."""

    goals: Mapping[str, Any] = field(default_factory=dict)
    """Fields of Goals; `validation` still names its file."""
    rules: RuleSet

    def declared(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The file's goals and those given on the command line, which count more; None there is not given."""
        return {**self.goals, **{name: value for name, value in given.items() if value is not None}}


def configure(file: Path | None = None, own_rules: Path | None = None) -> Config:
    """The configuration of a file, with one's own rules from `own_rules`, or else from where the file says.

    Raises:
        ProfilerError: the file cannot be read, or something in it is not known or of a wrong type.
    """
    if file is None:
        return Config(rules=load(own_rules))
    top = _read(file)
    top.knows(KEYS)
    named = top.text("rules_path")
    beside = None if named is None else file.parent / named
    if own_rules is None and beside is not None and not beside.exists():
        raise top.wrong(
            "rules_path",
            f"names {named!r}, but there is no {beside}",
            "Give a path as seen from there.",
        )
    found = load(own_rules or beside)
    return Config(goals=_goals(top.table("goals")), rules=replace(found, rules=_configured(found.rules, top)))


@dataclass(frozen=True, slots=True)
class _Table:
    """A part of the file, and how to name it."""

    file: Path
    path: tuple[str, ...]
    values: Mapping[str, Any]

    def wrong(self, key: str, what: str, remedy: str) -> ProfilerError:
        """The error of a key."""
        return ProfilerError(f"{self.file}: {'.'.join((*self.path, key))} {what}.", remedy)

    def knows(self, names: Collection[str], all_of_them: str = "", elsewhere: Mapping[str, str] | None = None) -> None:
        """Refuse a key that is none of the names. `elsewhere` are names that mean something, but not here."""
        for key in self.values:
            if key not in names:
                meant = _meant(key, names, elsewhere or {})
                raise self.wrong(key, "is not known", meant or all_of_them or f"Known: {', '.join(names)}.")

    def table(self, key: str) -> _Table:
        """A table in it, empty if it is not there."""
        value = self.values.get(key, {})
        if not isinstance(value, Mapping):
            raise self.wrong(key, f"is {_kind(value)}, not a table", f"Write [{'.'.join((*self.path, key))}].")
        return _Table(self.file, (*self.path, key), value)

    def text(self, key: str) -> str | None:
        """A string in it."""
        value = self.values.get(key)
        if value is not None and not isinstance(value, str):
            raise self.wrong(key, f"is {_kind(value)}, not a text", f'Write {key} = "...".')
        return value

    def switch(self, key: str, default: bool) -> bool:
        """A yes or no in it."""
        value = self.values.get(key, default)
        if not isinstance(value, bool):
            raise self.wrong(key, f"is {_kind(value)}, not true or false", f"Write {key} = true or {key} = false.")
        return value

    def number(self, key: str) -> float:
        """A finite number in it, not negative."""
        value = self.values[key]
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.wrong(key, f"is {_kind(value)}, not a number", f"Write {key} = 0.1, or what it should be.")
        if not abs(value) <= sys.float_info.max:  # nan, inf, or an integer beyond any float
            raise self.wrong(key, "is not finite", "Give a number.")
        if value < 0:
            raise self.wrong(key, "is negative", "Limits are shares, times and counts: give 0 or more.")
        return value

    def names(self, key: str) -> Iterable[str]:
        """A list of strings in it."""
        value = self.values.get(key, [])
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise self.wrong(key, f"is {_kind(value)}, not a list of texts", f'Write {key} = ["..."].')
        return value


def _read(file: Path) -> _Table:
    """The whole of it; of a pyproject.toml our table."""
    try:
        values: Mapping[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ProfilerError(f"{file} cannot be read: {error.strerror or error}.", "Give a TOML file.") from error
    except ValueError as error:
        raise ProfilerError(f"{file} is no TOML: {error}.", "Mend that line.") from error
    whole = _Table(file, (), values)
    if file.name != PYPROJECT:
        if "tool" in values and whole.table("tool").table("profile-train").values:
            raise whole.wrong(
                "tool",
                "is not known",
                "Drop the prefix tool.profile-train: [goals], [rules.NAME].",
            )
        return whole
    ours = whole.table("tool").table("profile-train")
    if not ours.values:
        raise ProfilerError(f"{file} has no [tool.profile-train].", "Write one, or give another file.")
    return ours


def _goals(table: _Table) -> dict[str, Any]:
    table.knows([each.name for each in fields(Goals)])
    return {name: _goal(table, name) for name in table.values}


def _goal(table: _Table, name: str) -> object:
    if name == "capacity":
        return table.switch(name, False)
    if name == "validation":
        return str(table.file.parent / (table.text(name) or ""))
    value = table.values[name]
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise table.wrong(name, f"is {_kind(value)}", "Write a number, or a text as on the command line.")
    try:
        return READERS[name](str(value))
    except ValueError as error:
        what, _, remedy = str(error).partition(". ")
        raise table.wrong(name, f"is wrong: {what.rstrip('.')}", remedy) from error


def _configured(rules: tuple[Rule, ...], top: _Table) -> tuple[Rule, ...]:
    """The rules with what the file sets for them."""
    ids = [rule.id for rule in rules]
    tables, opted_in = top.table("rules"), list(top.names("opt_in"))
    elsewhere = _meanings(rules)
    tables.knows(ids, "List them: profile-train rules", elsewhere)
    for name in opted_in:
        if name not in ids:
            raise top.wrong(
                "opt_in", f"names {name!r}, which is no rule", _meant(name, ids) or "List: profile-train rules"
            )
    return tuple(
        _with_settings(
            replace(rule, cap=Severity.ACTION) if rule.id in opted_in else rule, tables.table(rule.id), elsewhere
        )
        for rule in rules
    )


def _with_settings(rule: Rule, table: _Table, elsewhere: Mapping[str, str]) -> Rule:
    table.knows(("enabled", *rule.thresholds), f"All about the rule: profile-train explain {rule.id}", elsewhere)
    limits = {name: table.number(name) for name in table.values if name != "enabled"}
    off = "" if table.switch("enabled", True) else f"[{'.'.join(table.path)}] of {table.file}"
    return replace(rule, limits=limits, off=off)


def _meanings(rules: tuple[Rule, ...]) -> dict[str, str]:
    """What the names of metrics, and of all rules' limits, mean."""
    having: dict[str, list[str]] = {}
    for rule in rules:
        for limit in rule.thresholds:
            having.setdefault(limit, []).append(rule.id)
    metrics = {
        each.name: f"{each.name} is a metric; what can be set are the limits of rules." for each in all_metrics()
    }
    limits = {name: f"{name} is a limit of {', '.join(ids)}." for name, ids in having.items()}
    return metrics | limits


def _meant(name: str, names: Collection[str], elsewhere: Mapping[str, str] | None = None) -> str:
    near = difflib.get_close_matches(name, [*names, *(elsewhere or {})], n=1)
    if not near:
        return ""
    return f"Did you mean {near[0]}?" if near[0] in names else (elsewhere or {})[near[0]]


def _kind(value: object) -> str:
    kinds = {bool: "true or false", int: "a number", float: "a number", str: "a text", list: "a list", dict: "a table"}
    return kinds.get(type(value), "a date or time")
