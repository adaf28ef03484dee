"""Show the progress of trials: a line per event and, in a terminal, a bar of the finished runs."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from advisor.judging.judge import Finding
from advisor.report.render.tried import change, outcome
from advisor.units import seconds
from advisor.verify.kept import Verified
from advisor.verify.pace import predicted
from advisor.verify.trials import Trials
from advisor.verify.tuning import KeptChange
from profiler.printable import printable


class TrialProgress:
    """The display of a trial's progress, used as a context manager."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
            transient=True,
        )
        self._task = self._bar.add_task("", total=None, visible=False)

    def __enter__(self) -> TrialProgress:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def profiling(self, number: int, kept: Sequence[KeptChange]) -> None:
        """Report that the program is profiled once more."""
        names = ", ".join(each.verified.rule for each in kept)
        self._say(f"Profile {number}: {f'with {names}' if names else 'the program as it is'}")
        self._bar.reset(self._task, description="profiling", total=None, visible=True)

    def trying(self, trials: Trials, finding: Finding) -> None:
        """Report that advice is about to be tried."""
        promise = predicted(finding)
        gain = f"{change(promise)} step time predicted" if promise else "no gain in step time predicted"
        runs = f"{2 * trials.how.processes} runs of {trials.steps_of(finding)} steps"
        self._say(f"{finding.rule.id}: {gain}; {runs}, about {seconds(trials.duration(finding))}")
        self._bar.reset(self._task, description=finding.rule.id, total=2 * trials.how.processes, visible=True)

    def running(self, what: str, done: int, of: int) -> None:
        """Report how many runs are done."""
        if not self._console.is_terminal and done < of:
            self._say(f"  run {done + 1} of {of}: {what}")
        self._bar.update(self._task, description=what, completed=done, total=of)

    def tried(self, finding: Finding, found: Verified) -> None:
        """Report the outcome of a trial."""
        self._say(f"{finding.rule.id}: {outcome(found)}")

    def show(self, text: str) -> None:
        """Report a text as it is."""
        self._say(text)

    def _say(self, line: str) -> None:
        self._console.print(Text(printable(line)), soft_wrap=not self._console.is_terminal)
