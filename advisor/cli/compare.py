"""Compare two recorded runs: the changes, and whether they are more than chance."""

import json
import shlex
from pathlib import Path

import click

from advisor.cli import completion, forms, options, sources
from profiler.printable import say

SLOWER = 3
UNTOLD = 4

EPILOG = """
\b
Exit status with --fail-if-slower: 3 if RUN_B is slower, 4 if there are too
few steps to tell, else 0.

\b
Examples:
  profile-train compare runs/before runs/after
  profile-train compare runs/main runs/branch --fail-if-slower 5% --out new.md
"""


@click.command(
    short_help="Compare two recorded runs.",
    help="Compare two recorded runs (their folders), or traces: step time, phases, memory, GPU work by operator, "
    "settings and environment, with intervals and a verdict.",
    epilog=EPILOG,
)
@click.argument("run_a", type=click.Path(path_type=Path), shell_complete=completion.runs_and_files)
@click.argument("run_b", type=click.Path(path_type=Path), shell_complete=completion.runs_and_files)
@click.option(
    "--fail-if-slower", "slower", type=options.quantity("share"), help="Fail if RUN_B is slower by this share: 5%."
)
@click.option(
    "--min-difference", "relevant", type=options.quantity("share"), help="Smallest difference that matters.  [5%]"
)
@forms.options
def compare(
    run_a: Path, run_b: Path, slower: float | None, relevant: float | None, form: str | None, out: Path | None
) -> int:
    """Compare two recorded runs, and return the exit status."""
    from advisor.compare.change import RELEVANT, ChangeVerdict
    from advisor.compare.comparison import compare
    from advisor.metrics.base import Metrics
    from advisor.report.render.compare_view import headline, sections
    from advisor.report.render.section import Page

    if slower is not None and relevant is not None:
        raise click.UsageError("--fail-if-slower already sets the difference that matters: remove --min-difference.")
    if run_a.resolve() == run_b.resolve():
        raise click.UsageError(f"RUN_A and RUN_B are the same run, {run_a}.")
    threshold = next((value for value in (slower, relevant) if value is not None), RELEVANT)
    comparison = compare(
        Metrics(sources.read((run_a,))), Metrics(sources.read((run_b,))), (str(run_a), str(run_b)), threshold
    )
    command = shlex.join(["profile-train", "compare", str(run_a), str(run_b)])
    about = "Two runs are only two samples: repeat an important comparison."
    page = Page("profile-train compare", "comparison of two runs", about, command)
    forms.give(
        sections(comparison), lambda: json.dumps(comparison.result(), indent=2, allow_nan=False) + "\n", page, form, out
    )
    if out is not None:
        say(f"{out} is written.")
    if slower is None:
        return 0
    if comparison.verdict in (ChangeVerdict.TOO_FEW, ChangeVerdict.NOT_MEASURED):
        status = UNTOLD
    else:
        status = SLOWER if comparison.verdict is ChangeVerdict.WORSE else 0
    if out is not None or form not in (None, "text") or status:
        say(headline(comparison))
    return status
