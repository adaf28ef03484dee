"""Read the configuration file: goals, limits of rules and your own rules. Unknown keys and wrong types are errors.

  opt_in = ["precision-fp8"]      # may be advised as strongly as its gain deserves
  rules_path = "tools/rules"      # relative to this file
  fleet = "/shared/fleet"         # the data set of `profile-train fleet`; likewise

  [goals]
  gpu_price = 2.5

  [rules.data-workers-zero]
  min_wait = 0.08

  [rules.channels-last]
  enabled = false

In a pyproject.toml, the same goes under [tool.profile-train].
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from msgspec import DecodeError, toml

from advisor.metrics import all_metrics
from advisor.metrics.base import Goals
from advisor.rules.base import Rule, Severity
from advisor.settings.declared import READERS
from advisor.settings.own_rules import RuleSet, load
from advisor.settings.trust import doubt
from profiler.errors import ProfilerError

PYPROJECT = "pyproject.toml"
KEYS = ("opt_in", "rules_path", "fleet", "goals", "rules")


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The configuration of a report."""

    goals: Mapping[str, Any] = field(default_factory=dict)
    """Fields of Goals; `validation` still names its file."""
    rules: RuleSet
    fleet: Path | None = None
    """The data set of many runs."""

    def declared(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the file's goals, overridden by those given on the command line; None there means not given."""
        return {**self.goals, **{name: value for name, value in given.items() if value is not None}}


def configure(
    file: Path | None = None, own_rules: Path | None = None, *, found: bool = False, judging: bool = True
) -> Config:
    """Return the configuration of a file.

    Your own rules come from `own_rules`, or else from the path in the file.

    Args:
        file: None for the defaults.
        own_rules: A rule file, or a folder of them.
        found: Whether the file was found by search and not named by the user. If so, other users must not be able to
            write to it, nor to the code that it names.
        judging: Whether rules are needed. If not, their code is not run.

    Raises:
        ProfilerError: the file cannot be read or trusted, or something in it is unknown or of a wrong type.
    """
    if file is None:
        return Config(rules=load(own_rules) if judging else RuleSet(()))
    if found:
        _trust(file, f"Name it if you trust it: --config {file}")
    top = _read(file)
    top.knows(KEYS)
    rules_name = top.get("rules_path", "a string")
    rules_path = None if rules_name is None else file.parent / rules_name
    if own_rules is None and rules_path is not None and not rules_path.exists():
        raise top.wrong(
            "rules_path", f"is {rules_name!r}, but {rules_path} does not exist", "Give a path relative to that file."
        )
    goals_table = top.table("goals")
    goals_table.knows([goal.name for goal in fields(Goals)])
    goals = {name: _goal(goals_table, name) for name in goals_table.values}
    fleet = None if (name := top.get("fleet", "a string")) is None else file.parent / name
    if not judging:
        return Config(goals=goals, rules=RuleSet(()), fleet=fleet)
    if found and rules_path is not None and own_rules is None:
        _trust(rules_path, f"Name it if you trust it: --rules {rules_path}", code=True)
    rules = load(own_rules or rules_path)
    return Config(goals=goals, rules=replace(rules, rules=_configured(rules.rules, top)), fleet=fleet)


def _trust(path: Path, remedy: str, *, code: bool = False) -> None:
    try:
        reason = doubt(path, code=code)
    except OSError as error:
        raise ProfilerError(f"{path} cannot be read: {error.strerror or error}.", remedy) from None
    if reason:
        raise ProfilerError(f"{path} is not used: {reason}.", remedy)


@dataclass(frozen=True, slots=True)
class _Table:
    """A table of the file, and its name for messages."""

    file: Path
    path: tuple[str, ...]
    values: Mapping[str, Any]

    def wrong(self, key: str, what: str, remedy: str) -> ProfilerError:
        """Return the error for a key."""
        return ProfilerError(f"{self.file}: {'.'.join((*self.path, key))} {what}.", remedy)

    def knows(self, names: Collection[str], all_of_them: str = "", elsewhere: Mapping[str, str] | None = None) -> None:
        """Raise the error for a key that is not among `names`.

        `elsewhere` explains names that exist but do not belong here.
        """
        for key in self.values:
            if key not in names:
                suggestion = _meant(key, names, elsewhere or {})
                raise self.wrong(key, "is not a known key", suggestion or all_of_them or f"Known: {', '.join(names)}.")

    def table(self, key: str) -> _Table:
        """Return the table under a key, empty if there is none."""
        return _Table(self.file, (*self.path, key), self.get(key, "a table") or {})

    def get(self, key: str, kind: str) -> Any:
        """Return the value under a key, which must be of this kind, one of EXAMPLES; None if there is none."""
        value = self.values.get(key)
        are_strings = isinstance(value, list) and all(isinstance(element, str) for element in value)
        if value is not None and _kind(value) != kind and not (are_strings and kind == "a list of strings"):
            example = EXAMPLES[kind].format(key=key, path=".".join((*self.path, key)))
            raise self.wrong(key, f"is {_kind(value)}, not {kind}", f"Write {example}.")
        return value


EXAMPLES = {
    "a table": "[{path}]",
    "a string": '{key} = "..."',
    "true or false": "{key} = true or {key} = false",
    "a number": "{key} = 0.1",
    "a list of strings": '{key} = ["..."]',
}
"""How a value of each kind is written."""


def _read(file: Path) -> _Table:
    """Return the whole file, or the profile-train table of a pyproject.toml."""
    try:
        values: Mapping[str, Any] = toml.decode(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ProfilerError(f"{file} cannot be read: {error.strerror or error}.", "Give a TOML file.") from error
    except (ValueError, DecodeError) as error:
        raise ProfilerError(f"{file} is not valid TOML: {error}.", "Fix that line.") from error
    document = _Table(file, (), values)
    if file.name != PYPROJECT:
        if "tool" in values and document.table("tool").table("profile-train").values:
            raise document.wrong(
                "tool", "is not a known key", "Remove the prefix tool.profile-train: write [goals], [rules.NAME]."
            )
        return document
    section = document.table("tool").table("profile-train")
    if not section.values:
        raise ProfilerError(f"{file} has no settings in [tool.profile-train].", "Add some, or name another file.")
    return section


def _goal(table: _Table, name: str) -> object:
    if name == "capacity":
        return table.get(name, "true or false")
    if name == "validation":
        return str(table.file.parent / (table.get(name, "a string")))
    value = table.values[name]
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise table.wrong(name, f"is {_kind(value)}", "Write a number, or a string as on the command line.")
    try:
        return READERS[name](str(value))
    except ValueError as error:
        problem, _, remedy = str(error).partition(". ")
        raise table.wrong(name, f"is invalid: {problem.rstrip('.')}", remedy) from error


def _configured(rules: tuple[Rule, ...], top: _Table) -> tuple[Rule, ...]:
    ids = [rule.id for rule in rules]
    rules_table, opted_in_ids = top.table("rules"), top.get("opt_in", "a list of strings") or []
    elsewhere = _meanings(rules)
    rules_table.knows(ids, "To list the rules: profile-train rules", elsewhere)
    for rule_id in opted_in_ids:
        if rule_id not in ids:
            raise top.wrong(
                "opt_in",
                f"names {rule_id!r}, which is not a rule",
                _meant(rule_id, ids) or "To list the rules: profile-train rules",
            )
    return tuple(
        _with_settings(
            replace(rule, cap=Severity.ACTION) if rule.id in opted_in_ids else rule,
            rules_table.table(rule.id),
            elsewhere,
        )
        for rule in rules
    )


def _with_settings(rule: Rule, table: _Table, elsewhere: Mapping[str, str]) -> Rule:
    table.knows(("enabled", *rule.thresholds), f"See: profile-train explain {rule.id}", elsewhere)
    limits = {name: _limit(table, name) for name in table.values if name != "enabled"}
    is_off = table.get("enabled", "true or false") is False
    return replace(rule, limits=limits, off=f"[{'.'.join(table.path)}] of {table.file}" if is_off else "")


def _limit(table: _Table, name: str) -> float:
    value: float = table.get(name, "a number")
    if not abs(value) <= sys.float_info.max:  # nan, inf, or an integer beyond any float
        raise table.wrong(name, "is not finite", "Give a number.")
    if value < 0:
        raise table.wrong(name, "is negative", "Limits are shares, times and counts: give 0 or more.")
    return value


def _meanings(rules: tuple[Rule, ...]) -> dict[str, str]:
    """Return an explanation of each metric's name and of each rule's limits."""
    ids_by_limit: dict[str, list[str]] = {}
    for rule in rules:
        for limit in rule.thresholds:
            ids_by_limit.setdefault(limit, []).append(rule.id)
    metric_meanings = {
        metric.name: f"{metric.name} is a metric; only limits of rules can be set." for metric in all_metrics()
    }
    limit_meanings = {name: f"{name} is a limit of {', '.join(ids)}." for name, ids in ids_by_limit.items()}
    return metric_meanings | limit_meanings


def _meant(name: str, names: Collection[str], elsewhere: Mapping[str, str] | None = None) -> str:
    matches = difflib.get_close_matches(name, [*names, *(elsewhere or {})], n=1)
    if not matches:
        return ""
    return f"Did you mean {matches[0]}?" if matches[0] in names else (elsewhere or {})[matches[0]]


def _kind(value: object) -> str:
    kinds = {
        bool: "true or false",
        int: "a number",
        float: "a number",
        str: "a string",
        list: "a list",
        dict: "a table",
    }
    return kinds.get(type(value), "a date or time")
