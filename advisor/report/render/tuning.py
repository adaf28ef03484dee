"""Describe a tuning, for speed or for memory: for the terminal, as Markdown, as TOML to apply, and as JSON.

The schema of the JSON is docs/tuning.schema.json.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from advisor.report.render.markdown import code, fence, text
from advisor.report.render.picked import picked
from advisor.report.render.result_json import verified
from advisor.report.render.tried import outcome
from advisor.units import inline, seconds
from advisor.verify.fitting import Ending, Fitted
from advisor.verify.remedies import remedy_name
from advisor.verify.tuning import KeptChange, Tuned
from profiler.printable import printable

BAR = 30


def story(tuned: Tuned | Fitted) -> list[str]:
    """Return lines on each change's measured and predicted gain, or on the changes that the program needs to fit."""
    lines = _fitted(tuned) if isinstance(tuned, Fitted) else _tuned(tuned)
    return [printable(line) for line in lines]


def _tuned(tuned: Tuned) -> Iterator[str]:
    """Yield the step's time from first to last, and each change's predicted and measured gain."""
    yield _bar("unchanged", tuned.before, tuned.before)
    for kept_change in tuned.kept:
        if kept_change.verified.seconds is not None:
            yield _bar(kept_change.verified.rule, kept_change.verified.seconds[1], tuned.before)
        yield f"    {outcome(kept_change.verified)}"
    yield _bar("with all kept changes" if tuned.kept else "nothing was kept", tuned.after, tuned.before)
    for trial in tuned.given_up:
        yield f"  not kept: {trial.rule}. {outcome(trial)}"
    for finding in tuned.by_hand:
        yield f"  by hand: {finding.rule.title} [{finding.rule.id}]"


def _fitted(fitted: Fitted) -> Iterator[str]:
    """Yield how the program failed, the changes it needs to survive, and what else was tried."""
    yield f"Without changes: {inline(fitted.before.why)}"
    if fitted.after is None:
        yield "No set of changes that `tune` can apply makes the program fit."
    else:
        time = fitted.after.step_time
        pace = "" if time is None else f", of {seconds(time)} each"
        yield f"The smallest set of changes, with which it completed {fitted.after.steps} steps{pace}:"
        for kept_change in fitted.kept:
            yield f"  {kept_change.finding.advice.then} [{kept_change.verified.rule}]"
        yield "Peaks vary from step to step: leave some memory free, or test more steps with --steps."
    findings = [kept_change.finding for kept_change in fitted.kept]
    for remedies, ending in fitted.tried:
        if list(remedies) != findings:
            names = " + ".join(map(remedy_name, remedies))
            yield f"  tried: {names}: {'it fits, too.' if ending.fits else inline(ending.why)}"
    for left_out in fitted.left_out:
        yield f"  not tried: {left_out}"


def markdown(tuned: Tuned | Fitted, command: str) -> str:
    """Return the story as Markdown, with the changes to make by hand."""
    title = f"# Making {code(command)} fit" if isinstance(tuned, Fitted) else f"# Tuning of {code(command)}"
    parts = [title, "", fence("\n".join(story(tuned)), "text"), "", *_to_apply(tuned.kept)]
    return "\n".join(parts).rstrip() + "\n"


def _to_apply(kept: Sequence[KeptChange]) -> list[str]:
    """Return what to change by hand, as Markdown; empty if nothing was kept."""
    parts = ["## To apply", ""] if kept else []
    for kept_change in kept:
        parts += [f"### {text(kept_change.finding.rule.title)}", "", text(kept_change.finding.advice.then), ""]
        for change in kept_change.finding.advice.changes:
            if change.file:
                parts += [code(f"{change.file}:{change.line}" if change.line else change.file), ""]
            parts += [fence(change.code, change.language), ""]
    return parts


def toml(tuned: Tuned | Fitted) -> str:
    """Return the outcome and each kept change as TOML: its rule, how it was made, and its gain."""
    if isinstance(tuned, Fitted):
        head: dict[str, object] = {"fits": tuned.after is not None, "steps_before": tuned.before.steps}
        if tuned.after is not None:
            head |= {"steps_after": tuned.after.steps, "step_time_after": tuned.after.step_time}
    else:
        head = {"step_time_before": tuned.before, "step_time_after": tuned.after}
    return "\n".join([*_assigned(head), *_changes(tuned.kept)]) + "\n"


def _changes(kept: Sequence[KeptChange]) -> list[str]:
    lines = []
    for kept_change in kept:
        change = kept_change.finding.change
        lines += ["", "[[change]]", f"rule = {_value(kept_change.verified.rule)}", f"name = {_value(change.name)}"]
        if kept_change.verified.removed is not None:
            lines.append(f"removed = {_value(list(kept_change.verified.removed))}")
        lines += ["", "[change.settings]"]
        lines += _assigned(change.settings)
    return lines


def _assigned(values: Mapping[str, object]) -> list[str]:
    return [f"{name} = {_value(value)}" for name, value in values.items() if value is not None]


def _value(value: object) -> str:
    """Return a value as TOML. It has no null, so a variable to unset becomes an empty string."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_value(name)} = {_value(item)}" for name, item in value.items()) + " }"
    if isinstance(value, str):
        return json.dumps(printable(value), ensure_ascii=False)
    return json.dumps("" if value is None else value)


def _bar(name: str, time: float, longest: float) -> str:
    return f"{name:28.28} {seconds(time):>9}  {'#' * max(1, round(BAR * min(1.0, time / longest)))}"


def as_json(note: Mapping[str, object], tuned: Tuned | Fitted) -> str:
    """Return the file: the note that identifies the tuned program when tuning resumes, and the result."""
    return json.dumps({**note, "result": result(tuned)}, indent=2, allow_nan=False) + "\n"


def result(tuned: Tuned | Fitted) -> dict[str, Any]:
    """Return what was kept and what was not. Times are seconds per step; null is "not measured"."""
    if isinstance(tuned, Fitted):
        return {
            "goal": "memory",
            "before": _ending(tuned.before),
            "after": _ending(tuned.after) if tuned.after else None,
            "kept": list(map(_kept, tuned.kept)),
            "not_kept": [],
            "by_hand": [],
            "left_out": list(tuned.left_out),
            "run": str(tuned.profile),
        }
    return {
        "goal": "throughput",
        "before": {"fits": True, "step_time_s": tuned.before, "why": ""},
        "after": {"fits": True, "step_time_s": tuned.after, "why": ""},
        "kept": list(map(_kept, tuned.kept)),
        "not_kept": [{"rule": trial.rule, "verified": verified(trial)} for trial in tuned.given_up],
        "by_hand": [finding.rule.id for finding in tuned.by_hand],
        "left_out": [],
        "run": str(tuned.profile),
    }


def _ending(ending: Ending) -> dict[str, Any]:
    return picked(ending, "fits step_time_s=step_time why")


def _kept(kept: KeptChange) -> dict[str, Any]:
    change = {"name": kept.finding.change.name, "settings": dict(kept.finding.change.settings)}
    return {"rule": kept.verified.rule, "change": change, "verified": verified(kept.verified)}
