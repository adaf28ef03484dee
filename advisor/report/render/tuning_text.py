"""Describe a tuning: for the terminal, as Markdown, and as TOML to apply."""

import json
from collections.abc import Sequence

from advisor.report.render.markdown import code, fence, text
from advisor.report.render.tried import outcome
from advisor.units import seconds
from advisor.verify.tuning import KeptChange, Tuned
from profiler.printable import printable

BAR = 30


def story(tuned: Tuned) -> list[str]:
    """Return lines with the step's time from first to last, and each change's predicted and measured gain."""
    lines = [_bar("unchanged", tuned.before, tuned.before)]
    for each in tuned.kept:
        if each.verified.seconds is not None:
            lines.append(_bar(each.verified.rule, each.verified.seconds[1], tuned.before))
        lines.append(f"    {outcome(each.verified)}")
    lines.append(_bar("with all kept changes" if tuned.kept else "nothing was kept", tuned.after, tuned.before))
    for tried in tuned.given_up:
        lines.append(f"  not kept: {tried.rule}. {outcome(tried)}")
    for finding in tuned.by_hand:
        lines.append(f"  by hand: {finding.rule.title} [{finding.rule.id}]")
    return [printable(line) for line in lines]


def markdown(tuned: Tuned, command: str) -> str:
    """Return the story as Markdown, with the changes to make by hand."""
    parts = [f"# Tuning of {code(command)}", "", fence("\n".join(story(tuned)), "text"), "", *to_apply(tuned.kept)]
    return "\n".join(parts).rstrip() + "\n"


def to_apply(kept: Sequence[KeptChange]) -> list[str]:
    """Return what to change by hand, as Markdown; empty if nothing was kept."""
    parts = ["## To apply", ""] if kept else []
    for each in kept:
        parts += [f"### {text(each.finding.rule.title)}", "", text(each.finding.advice.then), ""]
        for change in each.finding.advice.changes:
            if change.file:
                parts += [code(f"{change.file}:{change.line}" if change.line else change.file), ""]
            parts += [fence(change.code, change.language), ""]
    return parts


def toml(tuned: Tuned) -> str:
    """Return each kept change as TOML: its rule, how it was made, and its gain."""
    lines = [f"step_time_before = {tuned.before!r}", f"step_time_after = {tuned.after!r}", *changes(tuned.kept)]
    return "\n".join(lines) + "\n"


def changes(kept: Sequence[KeptChange]) -> list[str]:
    """Return the kept changes as TOML tables."""
    lines = []
    for each in kept:
        lines += ["", "[[change]]", f"rule = {_value(each.verified.rule)}", f"name = {_value(each.change.name)}"]
        if each.verified.removed is not None:
            lines.append(f"removed = {_value(list(each.verified.removed))}")
        lines += ["", "[change.settings]"]
        lines += [f"{name} = {_value(value)}" for name, value in each.change.settings.items() if value is not None]
    return lines


def _value(value: object) -> str:
    """Return a value as TOML. It has no null, so a variable to be unset becomes an empty one."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_value(name)} = {_value(each)}" for name, each in value.items()) + " }"
    if isinstance(value, str):
        return json.dumps(printable(value), ensure_ascii=False)
    return json.dumps("" if value is None else value)


def _bar(name: str, time: float, longest: float) -> str:
    return f"{name:28.28} {seconds(time):>9}  {'#' * max(1, round(BAR * min(1.0, time / longest)))}"
