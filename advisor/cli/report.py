"""Make the report of a run again, or of traces that torch.profiler wrote."""

from pathlib import Path

import click

from advisor.cli import completion, options, sources
from advisor.cli.command import Command
from advisor.cli.options import Criteria

SECTIONS = ("advice", "evidence", "operators", "hot-lines", "metrics", "ranks")
"""Names of `agent_text.SECTIONS`, which takes long to import."""

REPORTS = ("report.html", "report.md", "result.json")


def _a_run_or_traces(ctx: click.Context, param: click.Parameter, paths: tuple[Path, ...]) -> tuple[Path, ...]:
    """Return the paths, which are one run folder or traces; reject other combinations.

    It is an easy mistake to pass the report inside a run folder, so the message names the folder.
    """
    for path in paths:
        if not path.exists():
            raise click.BadParameter(
                f"There is no folder or file {path}. Give the run's folder (the one in --out, or the one that the run "
                "printed) or traces of torch.profiler."
            )
        if path.is_file() and (path.name in REPORTS or path.suffix == ".db"):
            raise click.BadParameter(f"{path} is a file. Give the run's folder: profile-train report {path.parent}")
        if path.is_dir() and len(paths) > 1:
            raise click.BadParameter(f"{path} is a folder. Give one folder, or files of traces, not both.")
    return paths


@click.command(
    cls=Command,
    short_help="Make the report of a recorded run, or of traces.",
    help="Make the report of a recorded RUN (its folder) again, or of TRACES exported by torch.profiler: trace.json "
    "or trace.json.gz, one per rank, or the folder that contains them.",
    epilog="\b\nExamples:\n  profile-train report runs/first --gpu-price 2.50\n"
    "  profile-train report trace_*.json.gz --out report\n"
    "  profile-train report after.json.gz --against before.json.gz",
)
@click.argument(
    "paths",
    metavar="RUN|TRACES...",
    nargs=-1,
    required=True,
    type=click.Path(path_type=Path),
    callback=_a_run_or_traces,
    shell_complete=completion.runs_and_files,
)
@click.option(
    "--out", type=click.Path(path_type=Path), help="Folder for the report.  [RUN; profile-train-runs/<trace>]"
)
@click.option(
    "--against",
    metavar="RUN|TRACE",
    type=click.Path(path_type=Path, exists=True),
    help="Compare with this run, trace or folder of traces, operator by operator.",
)
@click.option("--json", "as_json", is_flag=True, help="Print result.json to stdout; write nothing.")
@click.option(
    "--for", "reader", type=click.Choice(["agent"]), help="Print a compact text for a coding agent; write nothing."
)
@click.option(
    "--section",
    "sections",
    multiple=True,
    type=click.Choice(list(SECTIONS)),
    help="With --for agent: print this section instead of the summary. Repeat the option for several sections.",
)
@click.option("--open", "open_report", is_flag=True, help="Open the report in the browser.")
@click.option("--summary/--no-summary", default=True, help="Print the summary.")
@options.criteria
def report(
    paths: tuple[Path, ...],
    out: Path | None,
    against: Path | None,
    as_json: bool,
    reader: str | None,
    sections: tuple[str, ...],
    open_report: bool,
    summary: bool,
    criteria: Criteria,
) -> None:
    """Make the report of a run or of traces."""
    from advisor.compare.comparison import compare
    from advisor.metrics.base import Metrics
    from advisor.publish import report_of, write
    from advisor.report.render import agent_text, result_json
    from advisor.report.render.terminal import summarize
    from profiler import ours
    from profiler.recorder.folder import DEFAULT

    if sections and not reader:
        raise click.UsageError("--section requires --for agent.")
    if against and reader:
        raise click.UsageError("--for agent has no comparison: use `profile-train compare A B --format json`.")
    source, profile = paths[0], sources.read(paths)
    run = source if profile.runs else None
    report = report_of(profile, run, criteria.goals, criteria.config.rules, criteria.past(), criteria.config.fleet)
    comparison = None
    if against is not None:
        comparison = compare(Metrics(sources.read((against,))), Metrics(profile), (str(against), str(source)))
    if as_json:
        click.echo(result_json.render(report, comparison), nl=False)
        return
    if reader:
        texts = [agent_text.section(report, name) for name in sections] or [agent_text.summary(report)]
        click.echo("\n".join(texts), nl=False)
        return
    folder = out or run or Path(DEFAULT) / source.absolute().name.partition(".")[0]
    rest = " ..." if len(paths) > 1 and source.is_file() else ""
    write(report, folder, f"profile-train report {source}{rest} --out FOLDER", comparison)
    if summary:
        summarize(report, folder, compared=comparison)
    if open_report:
        click.launch(str(ours.where(folder, "report.html")))
