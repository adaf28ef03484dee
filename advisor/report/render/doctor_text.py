"""Print the doctor's findings in the terminal, each as soon as it is known."""

from collections.abc import Iterable

from rich.console import Console
from rich.table import Table
from rich.text import Text

from advisor.doctor.finding import CheckResult, CheckState
from advisor.units import count
from profiler.printable import printable

_STYLES = {CheckState.OK: "green", CheckState.WARNING: "yellow", CheckState.FIX: "bold red"}
_WIDEST = 16


def show(findings: Iterable[CheckResult], console: Console | None = None) -> list[CheckResult]:
    """Print the findings, and return them."""
    console = console or Console(highlight=False)
    results = []
    for finding in findings:
        console.print(_line(finding))
        results.append(finding)
    counts = {state: sum(result.state is state for result in results) for state in CheckState}
    parts = [
        f"{counts[CheckState.FIX]} to fix",
        count(counts[CheckState.WARNING], "warning"),
        f"{counts[CheckState.OK]} ok",
    ]
    console.print(Text(f"\n{', '.join(parts)}."))
    return results


def _line(each: CheckResult) -> Table:
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(width=7)
    grid.add_column(width=_WIDEST)
    grid.add_column()
    text = Text(printable(each.said))
    if each.remedy:
        text.append(f"\n-> {printable(each.remedy)}", style="cyan")
    grid.add_row(Text(each.state.value, style=_STYLES[each.state]), Text(printable(each.name)), text)
    return grid
