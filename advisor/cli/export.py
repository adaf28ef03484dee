"""Export a recorded run to other tools as a timeline, tables or metrics."""

from __future__ import annotations

import importlib
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from advisor.cli import completion, options, sources
from profiler.errors import ProfilerError
from profiler.printable import say

if TYPE_CHECKING:
    from advisor.metrics.base import Goals, Metrics


class Format(NamedTuple):
    """The settings of an export."""

    module: str
    """In advisor.export; its `write` takes the nodes, the metrics and the place."""
    place: str = ""
    """Default file or folder in the run's folder; empty for formats that go to stdout or over the network."""
    viewer: str = ""


_TIMELINE = Format("chrome", "timeline.json.gz", "https://ui.perfetto.dev")

FORMATS = {
    "perfetto": _TIMELINE,
    "chrome": _TIMELINE,
    "speedscope": Format("speedscope", "stacks.speedscope.json", "https://www.speedscope.app"),
    "pprof": Format("pprof", "stacks.pb.gz"),
    "csv": Format("csv", "csv"),
    "parquet": Format("parquet", "parquet"),
    "prometheus": Format("prometheus"),
    "otel": Format("otel"),
}

READABLE = 0o644
"""Mode of a Prometheus file: its reader, the node exporter, runs as another user."""

SHARE = 0.1
"""Largest share of one core that --every may use: the training may need it."""

EPILOG = """
\b
Examples:
  profile-train export runs/first  # a timeline: see it in ui.perfetto.dev
  profile-train export runs/first --to parquet --out tables
  profile-train export runs/now --to prometheus --every 15 --out train.prom
  profile-train export runs/first --to otel --out run.jsonl
"""


@click.command(
    short_help="Export a run to Perfetto, pandas, Prometheus ...",
    help="Export a recorded RUN (its folder) to other tools: as a timeline (perfetto or chrome), sampled stacks "
    "(speedscope, pprof), tables (csv, parquet), metrics (prometheus), or spans and metrics (otel).",
    epilog=EPILOG,
)
@click.argument("run", type=click.Path(path_type=Path), shell_complete=completion.runs)
@click.option("--to", "form", type=click.Choice(list(FORMATS)), default="perfetto", show_default=True, help="Format.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="File, or folder for tables.  [RUN/timeline.json.gz, RUN/stacks.speedscope.json, RUN/stacks.pb.gz, RUN/csv, "
    "RUN/parquet; "
    "prometheus: stdout; otel: $OTEL_EXPORTER_OTLP_ENDPOINT]",
)
@click.option(
    "--every",
    metavar="SECONDS",
    type=click.FloatRange(min=1),
    help="For prometheus: update the file at this interval until the run ends.",
)
@options.CONFIG
def export(run: Path, form: str, out: Path | None, every: float | None, config: Path | None) -> None:
    """Write a recorded run in the format of another tool."""
    from advisor.metrics.base import Metrics
    from advisor.settings.declared import goals

    if every is not None and (form != "prometheus" or out is None):
        raise click.UsageError("--every requires --to prometheus and --out.")
    if run.is_file():
        raise ProfilerError(
            f"{run} is a file, not a run folder.",
            "Give the run's folder: the one in --out when you recorded it, or the one that the run printed.",
        )
    run_goals = goals(options.configured(config, judging=False).goals)
    if every is not None and out is not None:
        _keep(run, out, every, run_goals)
        return
    metrics = Metrics(sources.recording(run), run_goals)
    _tell_of_losses(metrics)
    place = out or (run / FORMATS[form].place if FORMATS[form].place else None)
    _give(form, metrics, run, place)
    if place is not None:
        hint = f" Open it in {FORMATS[form].viewer}." if FORMATS[form].viewer else ""
        say(f"{place} is written.{hint}")


def _tell_of_losses(metrics: Metrics) -> None:
    """Print the problems of the recording whose data is missing from every export."""
    for problem in metrics.profile.problems:
        if problem.source == "store":
            say(problem.message)


def _give(form: str, metrics: Metrics, run: Path, place: Path | None) -> None:
    """Write or send the run in a format, whose module is imported on use."""
    from advisor import atomic_write
    from advisor.export.nodes import nodes

    module = importlib.import_module(f"advisor.export.{FORMATS[form].module}")
    recordings = nodes(run, metrics.profile)
    if form == "prometheus":
        text = module.text(recordings, metrics, run.absolute().name)
        if place is None:
            click.echo(text, nl=False)
        else:
            atomic_write.write(place, text, READABLE)
    elif place is None:
        module.send(recordings, metrics)
    else:
        module.write(recordings, metrics, place)


def _keep(run: Path, out: Path, every: float, wanted: Goals) -> None:
    """Keep the file up to date until the run has ended; its last state stays."""
    from advisor.metrics.base import Metrics
    from profiler.recorder.folder import is_running

    while True:
        goes_on = is_running(run)  # checked before reading, so that the last rows are not missed
        begin = time.perf_counter()
        try:
            metrics = Metrics(sources.recording(run), wanted)
        except ProfilerError:  # it may be readable again the next time
            if not goes_on:
                raise
        else:
            _give("prometheus", metrics, run, out)
            if not goes_on:
                _tell_of_losses(metrics)
                return
        seconds = time.perf_counter() - begin
        threading.Event().wait(max(every - seconds, seconds / SHARE - seconds))
