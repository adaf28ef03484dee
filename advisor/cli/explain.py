"""Explain a rule or a metric."""

from pathlib import Path

import click

from advisor.cli import completion, options


@click.command(
    short_help="Explain a rule or a metric.",
    help="Explain a rule (condition, advice, limits, sources, results of trials) or a metric, by its NAME.",
    epilog="\b\nExamples:\n  profile-train explain data-workers-zero\n  profile-train explain data_wait_fraction",
)
@click.argument("name", metavar="NAME", shell_complete=completion.rules_and_metrics)
@options.CONFIG
@options.RULES
@options.CALIBRATION
def explain(name: str, config: Path | None, own_rules: Path | None, calibration: Path | None) -> None:
    """Print the page of a rule or a metric."""
    from rich.console import Console
    from rich.markdown import Markdown

    from advisor.report import pages

    page = pages.explained(name, options.rules(config, own_rules), options.past(calibration))
    Console().print(Markdown(page, hyperlinks=False))
