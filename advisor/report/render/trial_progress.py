"""Show the progress of trials: a line per event and, in a terminal, a bar of the finished runs."""

from collections.abc import Sequence

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from advisor.judging.judge import Finding
from advisor.report.render.tried import change, outcome
from advisor.units import seconds
from advisor.verify.kept import Verified
from advisor.verify.trials import Trials
from profiler.printable import printable


class TrialProgress(Progress):
    """The display of a trial's progress, used as a context manager."""

    def __init__(self, console: Console) -> None:
        super().__init__(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
            transient=True,
        )
        self._bar = self.add_task("", total=None, visible=False)

    def profiling(self, number: int, kept: Sequence[str]) -> None:
        """Report that the program is profiled once more."""
        self.show(f"Profile {number}: " + (f"with {', '.join(kept)}" if kept else "the program as it is"))
        self.reset(self._bar, description="profiling", total=None, visible=True)

    def trying(self, trials: Trials, finding: Finding) -> None:
        """Report that advice is about to be tried."""
        gain = f"{change(finding.alone)} step time predicted" if finding.alone else "no gain in step time predicted"
        runs = f"{2 * trials.how.processes} runs of {trials.steps_of(finding)} steps"
        self.show(f"{finding.rule.id}: {gain}; {runs}, about {seconds(trials.duration(finding))}")
        self.reset(self._bar, description=finding.rule.id, total=2 * trials.how.processes, visible=True)

    def running(self, what: str, done: int, of: int) -> None:
        """Report how many runs are done."""
        if not self.console.is_terminal and done < of:
            self.show(f"  run {done + 1} of {of}: {what}")
        self.update(self._bar, description=what, completed=done, total=of)

    def tried(self, finding: Finding, found: Verified) -> None:
        """Report the outcome of a trial."""
        self.show(f"{finding.rule.id}: {outcome(found)}")

    def show(self, text: str) -> None:
        """Report a text as it is."""
        self.console.print(Text(printable(text)), soft_wrap=not self.console.is_terminal)
