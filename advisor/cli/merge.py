"""Merge recordings of one job that were made in separate folders, one per node or rank."""

from pathlib import Path

import click

from advisor.cli import completion
from profiler.printable import printable


@click.command(
    short_help="Join recordings that a job's nodes made in separate folders.",
    help="Join RUN RUN..., which the nodes of one job recorded in separate folders, into one folder. Then: "
    "profile-train report FOLDER",
    epilog="Example: profile-train merge node0/run node1/run --out both",
)
@click.argument(
    "runs",
    metavar="RUN RUN...",
    nargs=-1,
    required=True,
    type=click.Path(path_type=Path),
    shell_complete=completion.runs,
)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The new folder for all of them.")
def merge(runs: tuple[Path, ...], out: Path) -> None:
    """Merge recordings of one job into a new folder."""
    from advisor.runs.merge import merge as join

    parts = join(runs, out)
    for part in parts:
        ranks = ", ".join(map(str, sorted(part.ranks))) or "none"
        click.echo(printable(f"{part.path}: ranks {ranks}"), err=True)
    click.echo(printable(f"Joined: {out}  (profile-train report {out})"), err=True)
