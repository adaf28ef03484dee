"""Make the report of a run again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from advisor.cli import options
from profiler.printable import printable


def _a_folder(ctx: click.Context, param: click.Parameter, path: Path) -> Path:
    """Told apart here, because a report in the folder is easily given in its stead."""
    if path.is_dir():
        return path
    if path.exists():
        raise click.BadParameter(f"{path} is a file. Give the run's folder: profile-train report {path.parent}")
    raise click.BadParameter(f"There is no folder {path}. Give the run's folder: what --out named, or the run printed.")


@click.command(
    cls=options.Command,
    short_help="Make the report of a recorded run again.",
    help="Make the report of a recorded RUN (its folder) again.",
)
@click.argument("folder", metavar="RUN", type=click.Path(path_type=Path), callback=_a_folder)
@click.option("--out", type=click.Path(path_type=Path), help="Where to put the report.  [RUN]")
@click.option("--json", "as_json", is_flag=True, help="Print result.json to stdout; write nothing.")
@click.option("--open", "open_report", is_flag=True, help="Open the report in the browser.")
@click.option("--summary/--no-summary", default=True, help="Print what was found.")
@options.CONFIG
@options.RULES
@options.CALIBRATION
@options.goals
def report(
    folder: Path,
    out: Path | None,
    as_json: bool,
    open_report: bool,
    summary: bool,
    config: Path | None,
    own_rules: Path | None,
    calibration: Path | None,
    **declared: Any,
) -> None:
    """See the module."""
    # Imported only now: other commands start that much sooner.
    from advisor.config import configure
    from advisor.declared import goals
    from advisor.publish import publish, report_of
    from profiler.recorder.record import finish_orphan

    note = finish_orphan(folder)
    if note is not None:
        click.echo(f"profile-train: {printable(note)}", err=True)
    chosen = options.configuration(config, own_rules) or configure()
    wanted, past = goals(chosen.declared(declared)), options.past(calibration)
    if as_json:
        from advisor.render import result_json

        click.echo(result_json.render(report_of(folder, wanted, chosen.rules, past)), nl=False)
        return
    made = publish(folder, wanted, out, chosen.rules, past)
    if summary:
        from advisor.render.terminal import summarize

        summarize(made, out or folder)
    if open_report:
        click.launch(str((out or folder) / "report.html"))
