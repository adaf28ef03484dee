"""Describe how a program was made to fit: for the terminal, as Markdown, and as TOML to apply."""

from advisor.report.render.markdown import code, fence
from advisor.report.render.tuning_text import changes, to_apply
from advisor.units import seconds
from advisor.verify.fitting import Fitted
from profiler.printable import printable


def story(fitted: Fitted) -> list[str]:
    """Return lines on how the program failed, the changes it needs to survive, and what else was tried."""
    lines = [f"Without changes: {_small(fitted.before.why)}"]
    if fitted.after is None:
        lines.append("No set of changes that `fit` can apply makes the program fit.")
    else:
        time = fitted.after.step_time
        pace = "" if time is None else f", of {seconds(time)} each"
        lines.append(f"The least it takes, with which it took {fitted.after.steps} steps{pace}:")
        lines += [f"  {each.finding.advice.then} [{each.verified.rule}]" for each in fitted.kept]
        lines.append("Peaks vary from step to step: leave some memory free, or test more steps with --steps.")
    made = [each.change for each in fitted.kept]
    for chosen, ending in fitted.tried:
        if [each.change for each in chosen] != made:
            names = " + ".join(each.name for each in chosen)
            lines.append(f"  tried: {names}: {'it fits, too.' if ending.fits else _small(ending.why)}")
    lines += [f"  not tried: {each}" for each in fitted.left_out]
    return [printable(line) for line in lines]


def markdown(fitted: Fitted, command: str) -> str:
    """Return the story as Markdown, with the changes to make by hand."""
    parts = [f"# Making {code(command)} fit", "", fence("\n".join(story(fitted)), "text"), "", *to_apply(fitted.kept)]
    return "\n".join(parts).rstrip() + "\n"


def toml(fitted: Fitted) -> str:
    """Return whether it fits, and each change that it needs, as TOML."""
    fits = "true" if fitted.after else "false"
    lines = [f"fits = {fits}", f"steps_before = {fitted.before.steps}"]
    if fitted.after is not None:
        lines.append(f"steps_after = {fitted.after.steps}")
        if fitted.after.step_time is not None:
            lines.append(f"step_time_after = {fitted.after.step_time!r}")
    return "\n".join([*lines, *changes(fitted.kept)]) + "\n"


def _small(sentence: str) -> str:
    return f"{sentence[:1].lower()}{sentence[1:]}"
