"""The summary at the end of a run, on stderr: what was found, and where to read more."""

import re
from collections.abc import Iterable
from pathlib import Path

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from advisor.compare.comparison import Comparison
from advisor.judging.judge import WINDOW_TOO_SHORT
from advisor.judging.verdict import Verdict
from advisor.report.conclusion import conclude
from advisor.report.render import view
from advisor.report.render.compare_view import brief
from advisor.report.render.section_text import show
from advisor.report.render.tried import details, outcome
from advisor.report.report import Recommendation, Report
from advisor.report.wording import busy, diagnosis, forecast, guidance, inside_other, is_scattered, remarks
from advisor.units import seconds, share
from profiler import ours
from profiler.printable import printable

GOAL_UNDEFINED = "goal-undefined"
"""Advice that every run without goals gets: the report shows it, the summary does not."""

SEVERAL = 2
"""Number of stops of a plan with one change: now, and after it."""

INDENT = 3
MOST_ADVICE = 3
MOST_PROBLEMS = 3
MOST_RANKS = 3
BAR = 24
LEAST = 1e-3
"""Share of the step below which a phase has no row."""
_VERDICTS = {Verdict.CONFIRMED: "green", Verdict.BETTER: "green", Verdict.HARMFUL: "red"}
STYLES = {"action": "bold red", "suggest": "yellow", "info": "cyan"}


def summarize(report: Report, folder: Path, console: Console | None = None, compared: Comparison | None = None) -> None:
    """Print the summary, with the findings of a comparison if there is one.

    External text is text, never markup.
    """
    console = console or Console(stderr=True, highlight=False)
    if console.is_terminal:
        _summarize(report, folder, console, compared)
        return
    with console.capture() as capture:
        _summarize(report, folder, console, compared)
    # Rich pads lines to the width of the terminal.
    console.out(re.sub(r" +$", "", capture.get(), flags=re.MULTILINE), end="", highlight=False)


def _summarize(report: Report, folder: Path, console: Console, compared: Comparison | None) -> None:
    console.print()
    if sentence := busy(report):
        console.print(Text(printable(sentence), style="bold yellow"))
    console.print(Text(printable(diagnosis(report)), style="bold"))
    if sentence := guidance(report):
        console.print(Text(printable(sentence)))
    if report.imported and view.traced_gpu(report):
        console.print()
        _bars(((part.label, part.seconds, part.share) for part in report.traces[0].parts if part.seconds), console)
    if view.phases(report):
        console.print()
        largest = sorted(view.phases(report), key=lambda phase: phase.share or 0.0, reverse=True)
        rows = ((phase.label, phase.seconds or 0.0, phase.share or 0.0) for phase in largest)
        _bars((row for row in rows if row[2] >= LEAST), console)
    cause = view.why_slow(report).replace("`", "")
    hot_lines = f"Hottest lines of a step: {'; '.join(view.places_text(report))}." if view.places_text(report) else ""
    hint = _look(report)
    if notes := [
        *filter(None, (hot_lines, cause, hint, view.regions_text(report), view.between_text(report), *_ranks(report)))
    ]:
        console.print()
        for note in notes:  # printed one by one: printable() turns line ends into blanks
            console.print(Padding(Text(printable(note)), (0, 0, 0, 2)))
    if advice := _worth_a_line(report):
        console.print()
        _advice(report, advice, console)
    if len(view.path(report)) > SEVERAL and (sentence := forecast(report)):
        console.print()
        console.print(Text(printable(sentence)))
    if compared:
        show(brief(compared), console)
    if view.problems(report):
        console.print()
        _problems(report, console)
    console.print()
    if sentence := remarks(report):
        console.print(Text(printable(sentence), style="dim"))
    path = printable(str(ours.where(folder, "report.html")))
    console.print(Text.assemble("Report: ", (path, "bold")), soft_wrap=True)


def _bars(rows: Iterable[tuple[str, float, float]], console: Console) -> None:
    """Print a line for each part of a step or a trace: its name, seconds, share and a bar."""
    block = "#" if console.options.ascii_only else "\u2588"
    table = Table.grid(padding=(0, 2))
    for justify in ("left", "right", "right", "left"):
        table.add_column(justify=justify, no_wrap=True)
    for label, time, part in rows:
        table.add_row(label, seconds(time), share(part), Text(block * round(BAR * part), style="cyan"))
    console.print(Padding(table, (0, 0, 0, 2)))


def _ranks(report: Report) -> list[str]:
    if not report.ranks.many:
        return []
    named = report.ranks.named
    more = report.ranks.more + max(0, len(named) - MOST_RANKS)
    return [
        view.ranks_text(report),
        *map(view.named, named[:MOST_RANKS]),
        *([f"and {more:,} more ranks"] if more else []),
    ]


def _look(report: Report) -> str:
    """Return how to look into the phase "other", if that is the largest or if there is nothing better to do."""
    largest = report.largest_phase
    is_largest = largest is not None and largest.name == "other"
    return inside_other(report) if is_largest or conclude(report).kind in ("nothing", "too_noisy") else ""


def _worth_a_line(report: Report) -> list[Recommendation]:
    """Return the advice without what every run gets, and without what the warning of a busy machine covers."""
    excluded_rules = {GOAL_UNDEFINED, *([WINDOW_TOO_SHORT] if busy(report) and is_scattered(report) else [])}
    return [item for item in report.advice if item.rule not in excluded_rules]


def _advice(report: Report, advice: list[Recommendation], console: Console) -> None:
    for number, item in enumerate(advice[:MOST_ADVICE], start=1):
        style = STYLES[item.severity]
        gain = "".join(f"{sentence[:1].upper()}{sentence[1:]}. " for sentence in view.gains(item))
        console.print(Text.assemble((printable(f"{number}. {item.title}"), style), f"  [{item.rule}]"))
        console.print(Padding(Text(printable(f"{gain}{item.finding.advice.then}")), (0, 0, 0, 3)))
        if item.verified:
            result = f"Tried. {outcome(item.verified)} {details(item.verified)}"
            console.print(
                Padding(Text(printable(result), style=_VERDICTS.get(item.verified.verdict, "")), (0, 0, 0, 3))
            )
        if held_back := item.finding.held_back:
            console.print(Padding(Text(printable(f"Only information: {held_back}"), style="dim"), (0, 0, 0, 3)))
        if item.past:
            console.print(Padding(Text(printable(item.past), style="dim"), (0, 0, 0, 3)))
        for change in item.finding.advice.changes:
            arrow = "->" if console.options.ascii_only else "\u2192"
            _change(view.place(report, change), view.differences(change, arrow), console)
    if len(advice) > MOST_ADVICE:
        console.print(Text(f"   and {len(advice) - MOST_ADVICE} more in the report."))


def _change(where: str, differences: str, console: Console) -> None:
    """Print where a change belongs and what it sets: on one line if both fit. A path is never broken."""
    line = "  ".join(filter(None, (where, differences)))
    if where and len(line) + INDENT > console.width:
        console.print(Text(printable(f"{' ' * INDENT}{where}"), style="cyan"), soft_wrap=True)
        line = differences
    if line:
        console.print(Padding(Text(printable(line), style="cyan"), (0, 0, 0, INDENT)))


def _problems(report: Report, console: Console) -> None:
    for note in view.problems(report)[:MOST_PROBLEMS]:
        console.print(Text(printable(f"! {note.source}: {note.message}"), style="yellow"))
    if len(view.problems(report)) > MOST_PROBLEMS:
        console.print(Text(f"  and {len(view.problems(report)) - MOST_PROBLEMS} more in the report."))
