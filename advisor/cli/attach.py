"""Record a running training program for a while, and leave it as it was.

profile-train attach 41233 --duration 60s
"""

from typing import Any

import click

from advisor.cli import options
from advisor.cli.command import Command
from advisor.cli.options import Criteria
from profiler.printable import say


def _pid(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"PID must be a number, not {text!r}. List processes with: pgrep -af python")
    return int(text)


@click.command(
    cls=Command,
    short_help="Record a training process that is already running.",
    help="Inject hooks into a running training process, record it for a while, remove them, and write the report. "
    "Training continues unaffected. This runs code in that process: attach only to your own.",
    epilog="\b\nExamples:\n  profile-train attach 41233 --duration 60s\n"
    "  profile-train attach --all $(pgrep -of torchrun)",
)
@click.argument("pid", metavar="PID", type=options.Read("pid", _pid))
@click.option(
    "--duration",
    "seconds",
    type=options.quantity("duration", "time"),
    help="Recording time: 60s, 5m, 1h.  [until Ctrl-C or the program's end]",
)
@click.option("--steps", type=click.IntRange(1), help="Number of steps to record.")
@click.option("--all", "tree", is_flag=True, help="Record all ranks that PID (torchrun) started.")
@click.option("--no-inject", "outside", is_flag=True, help="Inject nothing: record only GPU and system data.")
@options.recording
@options.criteria
def attach(no_report: bool, criteria: Criteria, **wanted: Any) -> None:
    """Attach to a running training program, record it, and report on it."""
    from advisor.cli.run import show
    from profiler.attach.recording import Wanted, record

    folder, notes = record(Wanted(**wanted))  # its fields are the other options
    for note in notes:
        say(note)
    if not no_report:
        show(criteria.publish(folder, criteria.lenient_goals()), folder)
