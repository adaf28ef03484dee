"""Plan a training run before it starts: what fits, and how often to save a checkpoint."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import click

from advisor.cli import forms, options
from advisor.cli.command import Command, HeadedOption
from advisor.plan.model import OPTIMIZERS, PRECISIONS
from profiler.errors import ProfilerError

EPILOG = """
\b
Examples:
  profile-train plan --params 1.5B --gpus 8 --gpu-memory 24GB
  profile-train plan --params 8.03B --gpu H100 --layers 32 --hidden 4096 \\
      --heads 32 --sequence 4096 --vocabulary 128256
  profile-train plan --peak 8:21GB --peak 16:31GB --gpu A100-80GB
  profile-train plan --mtbf 2h --save-cost 20s --restart-cost 5m
"""


class _Command(Command):
    """A command that keeps its command line, so that a page can show how it was made."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.obj = shlex.join(["profile-train", "plan", *args])
        return super().parse_args(ctx, args)


_COUNT = options.quantity("count")
_SIZE = options.quantity("size")
_CAPACITY = options.quantity("capacity", "size")
_RATE = options.quantity("rate")
_TIME = options.quantity("seconds", "time")
_SHARE = options.quantity("share")
_PEAK = options.quantity("peak", "batch:size")
_NUMBER = click.IntRange(min=1)

_model = partial(click.option, cls=HeadedOption, heading="Model")
_machines = partial(click.option, cls=HeadedOption, heading="Machines")
_failures = partial(click.option, cls=HeadedOption, heading="Failures")


@click.command(
    cls=_Command,
    short_help="Plan memory, batch or checkpoint interval without a run.",
    help="Plan a training without running it: what fits (--params), the largest micro-batch (--peak, twice), how often "
    "to save (--mtbf and --save-cost).\n\nWrite sizes as 1.2GB (1e9 bytes) or GiB, times as 20s, 5m or 2h, shares "
    "as 65% or 0.65. Missing values come from the goals in the configuration.",
    epilog=EPILOG,
)
@click.option("--params", "parameters", type=_COUNT, help="Parameters: 1.5B, 350M, 7.5e9.")
@click.option("--gpus", type=_NUMBER, help="Number of GPUs (world size).  [1]")
@_machines("--gpus-per-node", "per_node", type=_NUMBER, help="GPUs of one machine.  [up to 8]")
@click.option("--gpu", metavar="NAME", help="Kind of GPU: H100, A100-80GB, RTX-4090 ...")
@click.option("--gpu-memory", type=_CAPACITY, help="Memory of one GPU; 24GB is read as 24 GiB.")
@_machines("--host-memory", "host", type=_CAPACITY, help="Memory of one machine, for offloading.")
@_machines("--reserve", type=_SHARE, default="8%", show_default=True, help="Share of a GPU to keep free.")
@_model("--optimizer", type=click.Choice(list(OPTIMIZERS)), default="adamw", show_default=True, help="Optimizer.")
@_model(
    "--precision",
    type=click.Choice(list(PRECISIONS)),
    default="bf16",
    show_default=True,
    help="bf16, fp16: autocast over fp32 weights; bf16-master: 16-bit weights, fp32 master copy; "
    "pure-bf16: nothing in fp32.",
)
@_model("--layers", type=_NUMBER, help="Transformer layers.")
@_model("--hidden", type=_NUMBER, help="Hidden size.")
@_model("--heads", type=_NUMBER, help="Attention heads.")
@_model("--sequence", type=_NUMBER, help="Tokens per sequence.")
@_model("--vocabulary", type=_NUMBER, help="Vocabulary size of the output layer.")
@_model("--flash/--no-flash", default=True, help="Attention that does not store its scores.  [flash]")
@_model("--activation-bytes-per-sample", type=_SIZE, help="Measured activation bytes per sample, instead of the shape.")
@click.option("--peak", "peaks", type=_PEAK, multiple=True, help="Measured peak, such as 8:21GB; give two.")
@_model("--largest-unit", type=_COUNT, help="Parameters of one block; ZeRO 3 gathers one block at a time.")
@_model("--micro-batch", type=_NUMBER, help="Samples per GPU that must fit at once.  [1]")
@_model("--target-batch", type=_NUMBER, help="Samples per optimizer step, over all GPUs.")
@_machines("--pcie", type=_RATE, help="Bus bandwidth to each GPU, for offloading.  [25GB/s]")
@_machines("--host-bandwidth", type=_RATE, help="Bandwidth of a machine's memory.  [80GB/s]")
@click.option("--mtbf", "between_failures", type=_TIME, help="Mean time between failures of the job.")
@_failures("--nodes", type=_NUMBER, help="Number of nodes; --mtbf is then the time between failures of one node.")
@click.option("--save-cost", "save", type=_TIME, help="Time that a save stops the training.")
@_failures("--async-save-cost", "async_save", type=_TIME, help="Time that an asynchronous save stops the training.")
@_failures("--restart-cost", "restart", type=_TIME, help="Time from a failure until training continues.")
@_failures("--interval", type=_TIME, help="Current time between saves.")
@_failures(
    "--spot-discount",
    "discount",
    type=_SHARE,
    help="Discount of spot instances; --mtbf is then their time between interruptions.",
)
@_machines("--gpu-price", metavar="PRICE", type=options.goal("gpu_price"), help="Price of a GPU-hour on demand.")
@options.CONFIG
@forms.options
@click.pass_context
def plan(ctx: click.Context, /, form: str | None, out: Path | None, config: Path | None, **given: Any) -> None:
    """Compute what fits into memory, and what it costs, before there is a run."""
    from advisor.plan.plan import Plan
    from advisor.report.render import plan_json
    from advisor.report.render.plan_view import sections
    from advisor.report.render.section import Page

    configuration = options.configuration(config, judging=False)
    try:
        plan = Plan.of(_with_goals(given, configuration.goals if configuration else {}))
    except ProfilerError as error:
        raise click.UsageError(f"{error.message} {error.remedy}", ctx) from error
    about = "A plan is a calculation, not a measurement: start with it, then record a run."
    page = Page("profile-train plan", "training plan", about, ctx.obj)
    forms.give(sections(plan), lambda: plan_json.render(plan), page, form, out)
    if out is not None:
        click.echo(f"Plan: {out}", err=True)


def _with_goals(given: dict[str, Any], goals: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options, completed from the configuration.

    Goals for failures are used only if a checkpoint interval is requested.
    """
    names = {"target_batch": "target_batch", "gpu_price": "gpu_price"}
    if given["save"] is not None:
        names |= {"restart": "restart", "discount": "spot_discount"}
        if given["nodes"] is None:  # with --nodes, --mtbf is per node, but the goal is per job
            names |= {"between_failures": "mtbf"}
    return {**given, **{name: goals[goal] for name, goal in names.items() if given[name] is None and goal in goals}}
