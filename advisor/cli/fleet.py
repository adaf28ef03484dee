"""Show which runs waste the most GPU time, and why."""

from pathlib import Path

import click

from advisor.cli import completion, options
from advisor.cli.command import Command
from profiler.errors import ProfilerError
from profiler.printable import say

DEFAULT = "profile-train-fleet"

EPILOG = """
\b
Examples:
  profile-train fleet /shared/runs --gpu-price 2.50
  profile-train fleet s3://bucket/runs --data /shared/fleet --engine ray
  profile-train fleet --since 2026-01-01  # what was imported before
"""


@click.command(
    cls=Command,
    short_help="Show which runs waste the most GPU time, and why.",
    help="Import the runs in FOLDERS or URLs (s3://, gs:// through fsspec) into one data set of Parquet files, and "
    "make one page about all of them: hours and money lost by cause, project, user, script and host, regressions, "
    "slow hosts, and the changes that would save the most. Needs the extra `fleet`; for s3:// also s3fs, for "
    "gs:// gcsfs.",
    epilog=EPILOG,
)
@click.argument("places", metavar="[FOLDER|URL]...", nargs=-1, shell_complete=completion.files)
@click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    help=f"Folder of the data set, the page and its JSON.  [`fleet` of the configuration; {DEFAULT}]",
)
@click.option("--since", default="", metavar="DATE", help="Show runs since this day: 2026-01-31.")
@click.option("--hours", type=click.Choice(["gpu", "cpu"]), help="Which hours to show.  [gpu, if any run used one]")
@click.option(
    "--gpu-price",
    metavar="PRICE",
    type=options.goal("gpu_price"),
    help="Price of a GPU-hour.  [the one declared for each run]",
)
@click.option(
    "--engine",
    type=click.Choice(["processes", "ray"]),
    default="processes",
    show_default=True,
    help="How to read the runs.",
)
@click.option("--address", metavar="ADDRESS", help="Address of the Ray cluster.  [the one that Ray finds]")
@click.option("--json", "as_json", is_flag=True, help="Print fleet.json to stdout; write no page.")
@click.option("--open", "open_page", is_flag=True, help="Open the page in the browser.")
@options.CONFIG
def fleet(
    places: tuple[str, ...],
    data: Path | None,
    since: str,
    hours: str | None,
    gpu_price: float | None,
    engine: str,
    address: str | None,
    as_json: bool,
    open_page: bool,
    config: Path | None,
) -> None:
    """Import runs, and make the page about all of them."""
    from advisor.atomic_write import keep
    from advisor.fleet.dataset import import_runs, opened
    from advisor.fleet.overview import overview
    from advisor.report.render import fleet
    from advisor.units import count

    configuration = options.configured(config, judging=False)
    folder = data or configuration.fleet or Path(DEFAULT)
    price = gpu_price if gpu_price is not None else configuration.goals.get("gpu_price")
    if address and engine != "ray":
        raise click.UsageError("--address requires --engine ray.")
    if places:
        totals = import_runs(folder, places, engine, address)
        suffix = f", {totals.not_complete} of them incomplete" if totals.not_complete else ""
        say(f"{count(totals.found, 'run folder')} found, {totals.read} of them new or changed{suffix}.")
        if not totals.found:
            raise ProfilerError("No run was found.", "A run folder contains result.json or run-HOST.db.")
    with opened(folder, loaded=True) as connection:
        summary = overview(connection, since=since, price=price, unit=hours and hours.upper())
    text = fleet.as_json(summary)
    if as_json:
        click.echo(text, nl=False)
        return
    command = " ".join(("profile-train fleet", *places))
    keep(folder, "fleet.json", text)
    page = keep(folder, "fleet.html", fleet.page(summary, command))
    say(f"{page} is written.")
    if open_page:
        click.launch(str(page))
