"""The story of a tuning: for the terminal, as Markdown, and as TOML for whoever applies it."""

from __future__ import annotations

import json

from advisor.units import seconds, share, span
from advisor.verify.kept import Verified
from advisor.verify.tuning import Tuned
from profiler.printable import printable

BAR = 30


def story(tuned: Tuned) -> list[str]:
    """Line by line: the step's time from first to last, and what each change was to bring and brought."""
    lines = [_bar("as it is", tuned.before, tuned.before)]
    for each in tuned.kept:
        assert each.verified.seconds is not None
        lines.append(_bar(each.verified.rule, each.verified.seconds[1], tuned.before))
        lines.append(f"    {outcome(each.verified)}")
    lines.append(_bar("with all of it", tuned.after, tuned.before))
    for tried in tuned.given_up:
        lines.append(f"  not kept: {tried.rule}, {outcome(tried)}")
    for finding in tuned.by_hand:
        lines.append(f"  left to you: {finding.rule.title} [{finding.rule.id}]")
    return [printable(line) for line in lines]


def outcome(tried: Verified) -> str:
    """What came of a change, in a line: "confirmed: 56% less step time measured (51 to 61%), 50 to 54% predicted"."""
    if tried.removed is None:
        return f"{tried.verdict.value}: {tried.why}"
    low, estimate, high = tried.removed
    direction = "less" if estimate >= 0 else "more"
    bounds = (low, high) if estimate >= 0 else (-high, -low)
    promise = f", {span(tried.predicted[0], tried.predicted[2])} predicted" if tried.predicted else ""
    return (
        f"{tried.verdict.value}: {share(abs(estimate))} {direction} step time measured "
        f"({span(*bounds)}){promise}; {tried.processes} runs of each"
    )


def markdown(tuned: Tuned, command: str) -> str:
    """The story, and the changes to make by hand."""
    parts = [f"# Tuning of `{command}`", "", "```text", *story(tuned), "```", "", "## To apply", ""]
    for each in tuned.kept:
        parts += [f"### {each.finding.rule.title}", "", each.finding.advice.then, ""]
        for change in each.finding.advice.changes:
            where = f"{change.file}:{change.line}" if change.file else ""
            parts += [*([f"`{where}`", ""] if where else []), f"```{change.language}", change.code.rstrip(), "```", ""]
    return "\n".join(parts).rstrip() + "\n"


def toml(tuned: Tuned) -> str:
    """Each kept change: its rule, how it was made, and what it brought."""
    lines = [f"step_time_before = {tuned.before!r}", f"step_time_after = {tuned.after!r}"]
    for each in tuned.kept:
        change = each.finding.advice.intervention
        assert change is not None
        lines += ["", "[[change]]", f"rule = {json.dumps(each.verified.rule)}", f"name = {json.dumps(change.name)}"]
        if each.verified.removed is not None:
            lines.append(f"removed = {json.dumps(list(each.verified.removed))}")
        lines += ["", "[change.settings]"]
        lines += [f"{name} = {json.dumps(value)}" for name, value in change.settings.items() if value is not None]
    return "\n".join(lines) + "\n"


def _bar(name: str, time: float, longest: float) -> str:
    return f"{name:28.28} {seconds(time):>9}  {'#' * max(1, round(BAR * min(1.0, time / longest)))}"
