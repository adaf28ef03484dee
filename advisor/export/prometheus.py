"""Export a run as text for Prometheus' textfile collector, during or after the run.

Values that were not measured are left out. The report's metrics keep their names, with the base unit appended, and are
per run; counts per rank suit `rate` and `sum by`.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from advisor.export.extra import extra
from advisor.export.nodes import Node
from advisor.metrics.base import Metrics
from advisor.report.quantities import quantities
from profiler.printable import printable
from profiler.schema import BETWEEN, PHASES, Run, Step

PREFIX = "profile_train_"

BASE = {
    "s": ("_seconds", 1.0),
    "us": ("_seconds", 1e-6),
    "h": ("_seconds", 3600.0),
    "B": ("_bytes", 1.0),
    "J": ("_joules", 1.0),
    "W": ("_watts", 1.0),
    "1": ("_ratio", 1.0),
    "count": ("", 1.0),
    "FLOP/s": ("", 1.0),
    "B/s": ("_bytes_per_second", 1.0),
    "currency": ("", 1.0),
}
"""By a metric's unit: the suffix of its base unit, and the factor from the unit to the base unit.

Metrics with other units are not exported: kWh would repeat the joules of `gpu_energy`.
"""

SHARES = ("_fraction", "_share", "_ratio")
"""Endings of names that already mark the metric as a ratio."""


def text(nodes: Iterable[Node], metrics: Metrics, run: str) -> str:
    """Return the exposition. The label `run` distinguishes the runs of a machine.

    Raises:
        ProfilerError: prometheus-client is not installed.
    """
    client, core = (extra(module, "Prometheus' format") for module in ("prometheus_client", "prometheus_client.core"))
    run = printable(run, lines=True)
    ranks = list(_ranks(core, nodes, run))

    class Collector:
        """A collector that supplies the registry with metrics."""

        def collect(self) -> Iterator[Any]:
            return chain(_run(core, metrics.profile.runs, run), ranks, _metrics(core, metrics, run))

    registry = client.CollectorRegistry()
    registry.register(Collector())
    exposition: bytes = client.generate_latest(registry)
    return exposition.decode()


def _run(core: Any, runs: Sequence[Run], run: str) -> Iterator[Any]:
    labels = ["run", "node", "version"]
    info = core.GaugeMetricFamily(
        f"{PREFIX}run_info", "Version of profile-train and host of the recording.", labels=labels
    )
    for node_run in runs:
        info.add_metric([run, printable(node_run.host), printable(node_run.version)], 1)
    yield info
    gauges = {
        "run_active": (
            "1 while the run is in progress, else 0.",
            float(any(node_run.outcome == "running" for node_run in runs)),
        ),
        "run_started_timestamp_seconds": (
            "Start of the run, as Unix time in seconds.",
            min(node_run.started_at for node_run in runs),
        ),
        "run_duration_seconds": ("Duration of the run, once it has ended.", runs[0].duration),
        "run_exit_status": ("Exit status of the program, once it has ended.", runs[0].exit_status),
    }
    for name, (meaning, value) in gauges.items():
        yield from _gauge(core, PREFIX + name, meaning, run, value)


def _ranks(core: Any, nodes: Iterable[Node], run: str) -> Iterator[Any]:
    labels = ["run", "node", "rank"]
    steps = core.SummaryMetricFamily(
        f"{PREFIX}step_seconds", "Time of optimizer steps, without the time between them.", labels=labels
    )
    batches = core.CounterMetricFamily(f"{PREFIX}batches", "Batches fetched for training.", labels=labels)
    phases = core.CounterMetricFamily(
        f"{PREFIX}phase_seconds", "Time in and between steps, by phase.", labels=[*labels, "phase"]
    )
    for node in nodes:
        for rank in node.ranks:
            label_values, rows = [run, printable(node.run.host), str(rank.process.rank)], rank.steps
            steps.add_metric(label_values, sum(step.count for step in rows), _sum(rows, "duration") or 0.0)
            if batch_count := _sum(rows, "batches"):  # also 0 if no loader was seen
                batches.add_metric(label_values, batch_count)
            for phase in (*PHASES, *BETWEEN):
                if (seconds := _sum(rows, phase)) is not None:
                    phases.add_metric([*label_values, phase], seconds)
    return iter((steps, batches, phases))


def _sum(rows: Sequence[Step], column: str) -> float | None:
    """Return the sum over all steps; None if none of them has the column."""
    values = [step.count * value for step in rows if (value := getattr(step, column)) is not None]
    return math.fsum(value for value in values if math.isfinite(value)) if values else None


def _metrics(core: Any, metrics: Metrics, run: str) -> Iterator[Any]:
    for quantity in quantities(metrics):
        if quantity.unit in BASE and quantity.value is not None:
            yield from _gauge(
                core, name(quantity.name, quantity.unit), quantity.meaning, run, quantity.value * BASE[quantity.unit][1]
            )


def name(own: str, unit: str) -> str:
    """Return a metric's name by Prometheus' rules, in base units.

    A name that ends in `_count` gets another ending, because that suffix belongs to summaries.
    """
    if unit == "count":
        return PREFIX + (f"{own.removesuffix('_count')}s" if own.endswith("_count") else own)
    if unit == "1" and own.endswith(SHARES):
        return PREFIX + own
    suffix = BASE[unit][0]
    return PREFIX + own.removesuffix("_us").removesuffix("_hours").removesuffix(suffix) + suffix


def _gauge(core: Any, name: str, meaning: str, run: str, value: float | None) -> Iterator[Any]:
    if value is not None:
        family = core.GaugeMetricFamily(name, meaning, labels=["run"])
        family.add_metric([run], value)
        yield family
