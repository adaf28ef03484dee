"""The summary at the end of a run, on stderr: what was found, and where to read on."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from advisor.render.view import View
from advisor.report import Report
from advisor.units import seconds, share
from advisor.verify.verdict import Verdict
from advisor.wording import assumed, counsel, diagnosis, inside_other, prospect, unanswered
from profiler.printable import printable

MOST_ADVICE = 3
MOST_PROBLEMS = 3
MOST_RANKS = 3
BAR = 24
_VERDICTS = {Verdict.CONFIRMED: "green", Verdict.BETTER: "green", Verdict.HARMFUL: "red"}
STYLES = {"action": "bold red", "suggest": "yellow", "info": "cyan"}


def summarize(report: Report, folder: Path, console: Console | None = None) -> None:
    """Print the summary. Whatever comes from outside is text, never markup."""
    console = console or Console(stderr=True, highlight=False)
    view = View(report)
    console.print()
    console.print(Text(printable(diagnosis(report)), style="bold"))
    if said := counsel(report):
        console.print(Text(printable(said)))
    if report.traces:
        console.print()
        console.print(Padding(_traces(view, console), (0, 0, 0, 2)))
    if view.phases:
        console.print()
        console.print(Padding(_phases(view, console), (0, 0, 0, 2)))
    for told in filter(None, (inside_other(report), view.regions_text, view.between_text, *_ranks(view))):
        console.print()
        console.print(Padding(Text(printable(told)), (0, 0, 0, 2)))
    if report.advice:
        console.print()
        _advice(view, console)
    if said := prospect(report):
        console.print()
        console.print(Text(printable(said)))
    if view.problems:
        console.print()
        _problems(view, console)
    console.print()
    if footer := _footer(report):
        console.print(Text(footer))
    if report.advice and (said := assumed(report)):
        console.print(Text(said, style="dim"))
    console.print(Text.assemble("Report: ", (printable(str(folder / "report.html")), "bold")), soft_wrap=True)


def _phases(view: View, console: Console) -> Table:
    """Largest first."""
    block = "#" if console.options.ascii_only else "\u2588"
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    for phase in sorted(view.phases, key=lambda phase: phase.share or 0.0, reverse=True):
        part = phase.share or 0.0
        bar = Text(block * round(BAR * part), style="cyan")
        table.add_row(phase.label, seconds(phase.seconds or 0.0), share(part), bar)
    return table


def _ranks(view: View) -> list[str]:
    """Of many."""
    if not view.report.ranks:
        return []
    named = view.report.ranks.named
    more = view.report.ranks.more + max(0, len(named) - MOST_RANKS)
    lines = [view.ranks_text, *map(view.named, named[:MOST_RANKS]), *([f"and {more:,} more ranks"] if more else [])]
    return ["\n".join(filter(None, lines))]


def _traces(view: View, console: Console) -> Table:
    """Of the first rank."""
    block = "#" if console.options.ascii_only else "\u2588"
    table = Table.grid(padding=(0, 2))
    for part in view.report.traces[0].parts:
        if part.seconds:
            bar = Text(block * round(BAR * part.share), style="cyan")
            table.add_row(part.label, seconds(part.seconds), share(part.share), bar)
    return table


def _advice(view: View, console: Console) -> None:
    advice = view.report.advice
    for number, item in enumerate(advice[:MOST_ADVICE], start=1):
        style = STYLES[item.severity]
        gain = "".join(f"{told[:1].upper()}{told[1:]}. " for told in view.gains(item))
        console.print(Text.assemble((printable(f"{number}. {item.title}"), style), f"  [{item.rule}]"))
        console.print(Padding(Text(printable(f"{gain}{item.then}")), (0, 0, 0, 3)))
        if item.verified:
            came = f"Tried. {view.tried(item)} {view.tried_on(item)}"
            console.print(Padding(Text(printable(came), style=_VERDICTS.get(item.verified.verdict, "")), (0, 0, 0, 3)))
        if item.held_back:
            console.print(Padding(Text(printable(f"Held back. {item.held_back}"), style="dim"), (0, 0, 0, 3)))
        if item.past:
            console.print(Padding(Text(printable(item.past), style="dim"), (0, 0, 0, 3)))
        for change in item.changes:
            told = (view.where(change), view.differences(change, "->" if console.options.ascii_only else "\u2192"))
            if any(told):
                line = Text(printable("  ".join(filter(None, told))), style="cyan")
                console.print(Padding(line, (0, 0, 0, 3)))
    if len(advice) > MOST_ADVICE:
        console.print(Text(f"   and {len(advice) - MOST_ADVICE} more in the report."))


def _problems(view: View, console: Console) -> None:
    for note in view.problems[:MOST_PROBLEMS]:
        console.print(Text(printable(f"! {note.source}: {note.message}"), style="yellow"))
    if len(view.problems) > MOST_PROBLEMS:
        console.print(Text(f"  and {len(view.problems) - MOST_PROBLEMS} more in the report."))


def _footer(report: Report) -> str:
    parts = []
    if report.overhead.fraction is not None:
        parts.append(f"Recording cost {share(report.overhead.fraction)} of the training.")
    if report.steps is not None and report.steps.count > 0 and (said := unanswered(report)):
        parts.append(f"{said} The report says what each needs.")
    if crashed := report.checks("crashed"):
        parts.append(f"Failed: {', '.join(printable(check.rule) for check in crashed)}.")
    return " ".join(parts)
