"""Make the report of a run again."""

from __future__ import annotations

from pathlib import Path

import click

from profiler.printable import printable


def _a_folder(ctx: click.Context, param: click.Parameter, path: Path) -> Path:
    """Told apart here, because a report in the folder is easily given in its stead."""
    if path.is_dir():
        return path
    if path.exists():
        raise click.BadParameter(f"{path} is a file. Give the run's folder: profile-train report {path.parent}")
    raise click.BadParameter(f"There is no folder {path}. Give the run's folder: what --out named, or the run printed.")


@click.command(
    short_help="Make the report of a recorded run again.", help="Make the report of a recorded RUN (its folder) again."
)
@click.argument("folder", metavar="RUN", type=click.Path(path_type=Path), callback=_a_folder)
@click.option("--out", type=click.Path(path_type=Path), help="Where to put the report.  [RUN]")
@click.option("--json", "as_json", is_flag=True, help="Print result.json to stdout; write nothing.")
@click.option("--gpu-price", type=click.FloatRange(min=0), help="Price of a GPU hour, to put gains into money.")
@click.option("--target-batch", type=click.IntRange(min=1), help="Wanted samples per optimizer step and rank.")
@click.option("--capacity", is_flag=True, help="A larger batch or model is wanted: let memory rules speak.")
@click.option("--open", "open_report", is_flag=True, help="Open the report in the browser.")
@click.option("--summary/--no-summary", default=True, help="Print what was found.")
def report(
    folder: Path,
    out: Path | None,
    as_json: bool,
    gpu_price: float | None,
    target_batch: int | None,
    capacity: bool,
    open_report: bool,
    summary: bool,
) -> None:
    """See the module."""
    # Imported only now: other commands start that much sooner.
    from advisor.metrics.base import Goals
    from advisor.publish import publish, report_of
    from profiler.recorder.record import finish_orphan

    note = finish_orphan(folder)
    if note is not None:
        click.echo(f"profile-train: {printable(note)}", err=True)
    goals = Goals(gpu_price=gpu_price, target_batch=target_batch, capacity=capacity)
    if as_json:
        from advisor.render import result_json

        click.echo(result_json.render(report_of(folder, goals)), nl=False)
        return
    made = publish(folder, goals, out)
    if summary:
        from advisor.render.terminal import summarize

        summarize(made, out or folder)
    if open_report:
        click.launch(str((out or folder) / "report.html"))
