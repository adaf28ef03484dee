"""Check whether this machine can train and be measured."""

import json
from dataclasses import asdict
from itertools import chain
from pathlib import Path

import click

FAILED = 1
SCHEMA = "profile-train/doctor@1"


@click.command(
    short_help="Check driver, torch, permissions and machine.",
    help="Check what training and profiling need on this machine: driver, CUDA, torch, permissions, cores, memory, "
    "disk. Each line is ok, a warning, or something to fix. The exit status is 1 if there is something to fix.",
    epilog="Example: profile-train doctor --data /data/photos",
)
@click.option("--data", type=click.Path(path_type=Path), help="Path of the training data, to measure the read speed.")
@click.option("--python", "interpreter", metavar="PATH", help="The program's Python.  [the active environment's]")
@click.option("--json", "as_json", is_flag=True, help="Print JSON to stdout.")
def doctor(data: Path | None, interpreter: str | None, as_json: bool) -> int:
    """Check the machine, and return 1 if something needs fixing."""
    from advisor.doctor import disk, gpus, host, permissions, stack
    from advisor.doctor.finding import CheckState
    from advisor.report.render.doctor_text import show
    from profiler.launch import python

    torch = stack.ask(interpreter or python())
    devices, samples, problems = gpus.see()
    findings = chain(
        stack.findings(torch, devices),
        gpus.findings(devices, samples, problems, torch),
        host.findings(host.look(), torch, devices),
        permissions.findings(torch),
        disk.findings(Path.cwd(), data),
    )
    if as_json:
        results = list(findings)
        checks = [{**asdict(result), "state": result.state.value} for result in results]
        click.echo(json.dumps({"schema": SCHEMA, "checks": checks}, indent=2))
    else:
        results = show(findings)
    return FAILED if any(result.state is CheckState.FIX for result in results) else 0
