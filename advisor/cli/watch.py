"""Watch a run from another terminal while it is running."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import click

from advisor.cli import completion, options
from profiler.errors import ProfilerError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from advisor.watch.snapshot import Snapshot
    from advisor.watch.watching import LiveRun


@click.command(
    short_help="Watch a run from another terminal.",
    help="Watch a RUN (its folder) from another terminal while it is running: step rate, phases, GPU, CPU, memory "
    "and the current advice, updated every second. Without RUN, watch the latest run in ./profile-train-runs.",
    epilog="\b\nExamples:\n  profile-train watch\n  profile-train watch runs/now --once --json",
)
@click.argument(
    "folder", metavar="[RUN]", required=False, type=click.Path(path_type=Path), shell_complete=completion.runs
)
@click.option("--once", is_flag=True, help="Show the current state once, and exit.")
@click.option("--json", "as_json", is_flag=True, help="With --once: print JSON.")
@options.CONFIG
def watch(folder: Path | None, once: bool, as_json: bool, config: Path | None) -> None:
    """Watch a run that is being recorded."""
    from rich.console import Console

    from advisor.settings.declared import goals
    from advisor.watch.watching import LiveRun, latest

    if as_json and not once:
        raise click.UsageError("--json requires --once.")
    configuration = options.configured(config)
    live_run = LiveRun(folder or latest(), configuration.rules, goals(configuration.goals))
    snapshot = live_run.look()  # report an error before anything is drawn
    console = Console(highlight=False)
    if as_json:
        click.echo(json.dumps(snapshot.result(), indent=2, allow_nan=False))
        return
    if not once and console.is_terminal:
        with contextlib.suppress(OSError):
            os.nice(5)  # on a fully loaded machine, the program has priority
        snapshot = _live(live_run, snapshot, console)
    console.print(_drawn(snapshot, live_run, console, height=1000))


def _live(watching: LiveRun, seen: Snapshot, console: Console) -> Snapshot:
    """Show the run on a separate screen until it ends or you stop it; then restore the terminal's content."""
    from rich.console import ConsoleDimensions
    from rich.live import Live

    from profiler.recorder.folder import is_running

    resized = threading.Event()
    signal.signal(signal.SIGWINCH, lambda *_: resized.set())
    note = ""
    with contextlib.suppress(KeyboardInterrupt), Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            with contextlib.suppress(OSError):  # COLUMNS and LINES do not follow a resize
                console.size = ConsoleDimensions(*os.get_terminal_size(console.file.fileno()))
            live.update(_drawn(seen, watching, console, note), refresh=True)
            if seen.is_over or not is_running(watching.folder):  # then nothing will change
                break
            if resized.wait(watching.pause):
                resized.clear()
                continue
            try:
                seen, note = watching.look(), ""
            except ProfilerError as error:  # it may be readable again in a second
                note = error.message
    return seen


def _drawn(seen: Snapshot, watching: LiveRun, console: Console, note: str = "", height: int | None = None) -> Text:
    from advisor.report.render.watch_text import draw
    from profiler.recorder.folder import is_running

    if not note and not seen.is_over and not is_running(watching.folder):
        note = f"This run is no longer being recorded. Report: profile-train report {seen.folder}"
    ascii_only = console.options.ascii_only
    return draw(seen, console.width, height or console.height, ascii_only=ascii_only, note=note)
