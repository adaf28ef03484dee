"""The comparison of two runs: all that is shown of it, and its serialisation."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from advisor.compare.change import RELEVANT, Verdict, difference, for_few, unbounded, verdict
from advisor.compare.settings import Difference, differences
from advisor.metrics import hardware, host, memory, step
from advisor.metrics.base import Metric, Metrics, Missing
from advisor.metrics.input import loader
from advisor.metrics.settings import data_parallel_size, primary_rank, world_size
from advisor.significance import Interval
from profiler.schema import BETWEEN, PHASES, TAG_FIRST, Outcome, Step

SCHEMA = "profile-train/comparison@1"

LEAST_STEPS = round(step.MIN_STEPS.value)

FULL = 0.9
"""Share of a machine's cores above which programs wait for one another (assumption)."""
CROWDED = 0.1
"""Share of the cores that others must use in one run beyond the other, to be taken for the cause (assumption)."""

SAMPLES_DIFFER = 0.01
"""Samples of a step differ: partial batches at the ends of epochs alone do not make as much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the two runs."""

    folder: str
    command: tuple[str, ...]
    ended: Outcome
    steps: int
    """Steady steps of the primary rank: what its means rest on."""
    samples: float | None
    """Of a step, over all ranks; None if not known."""
    ranks: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One quantity in both runs; None is "not measured"."""

    name: str
    label: str
    """For people, in lower case."""
    unit: str
    before: float | None
    after: float | None
    change: Interval | None = None
    """Share of the first run's step (of its memory, where it is bytes) that it is more; None where it is not judged."""
    verdict: Verdict | None = None
    """None where it is only shown."""

    @property
    def is_measured(self) -> bool:
        """In one of the runs at least, and not nothing in both."""
        return bool(self.before or self.after) or (self.before is None) != (self.after is None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The second run (`after`) beside the first (`before`)."""

    before: Side
    after: Side
    relevant: float
    """The smallest difference that matters, as a share."""
    verdict: Verdict
    """Of the time of a step, with what falls between steps."""
    crowded: str
    """"A" or "B", where other programs took cores in that run and not in the other; else nothing."""
    scale: float
    """What the second run's times were multiplied by, so that both are of as many samples; 1 as a rule."""
    steps: tuple[Row, ...]
    """The mean, the typical step, percentiles."""
    phases: tuple[Row, ...]
    between: tuple[Row, ...]
    """Seconds of a step."""
    memory: tuple[Row, ...]
    machine: tuple[Row, ...]
    """What GPUs and cores did; not judged."""
    settings: tuple[Difference, ...]
    environment: tuple[Difference, ...]

    @property
    def mean(self) -> Row:
        """The mean step."""
        return self.steps[0]

    @property
    def typical(self) -> Row:
        """The 10 % trimmed mean: single stalls do not move it."""
        return self.steps[1]

    @property
    def whole(self) -> Row:
        """The mean step with what falls between steps; the mean step where nothing does."""
        return next((row for row in self.steps if row.name == "whole_step_time"), self.mean)

    @property
    def hardware(self) -> tuple[Difference, ...]:
        """Of the environment, what a step's time hangs on."""
        return tuple(one for one in self.environment if one.name in _HARDWARE)

    def result(self) -> dict[str, Any]:
        """As JSON has it; an interval without bounds has none."""
        hardware = [f"{one.group}: {one.name}" for one in self.hardware]
        made: dict[str, Any] = _plain({"schema": SCHEMA, **asdict(self), "hardware": hardware})
        return made


def compare(
    before: Metrics, after: Metrics, names: tuple[str, str] = ("A", "B"), relevant: float = RELEVANT
) -> Comparison:
    """`names` are the runs' folders."""
    sides = (_side(before, names[0]), _side(after, names[1]))
    both = _Both(before, after, _scale(*sides), relevant, min(side.steps for side in sides) < LEAST_STEPS)
    between = tuple(both.times(name, _between(name)) for name in BETWEEN)
    mean = both.times("step_time_mean", _mean, step.step_time_mean.label)
    typical = both.times("typical_step_time", _typical, "typical step time")
    whole = both.whole(mean, between)
    steps = (
        mean,
        typical,
        *([whole] if whole else []),
        *(both.shown(one, times=True) for one in (step.step_time_p50, step.step_time_p90, step.step_time_p99)),
    )
    settings, environment = differences(before.profile, after.profile)
    crowded = _crowded(before, after)
    return Comparison(
        before=sides[0],
        after=sides[1],
        relevant=relevant,
        verdict=_overall((whole or mean, mean, typical), between, crowded),
        crowded=crowded,
        scale=both.scale,
        steps=steps,
        phases=tuple(both.times(name, _phase(name)) for name in PHASES),
        between=between,
        memory=tuple(both.amount(one) for one in _MEMORY),
        machine=tuple(both.shown(one) for one in _MACHINE),
        settings=settings,
        environment=environment,
    )


_HARDWARE = ("cpu_model", "cores", "cores_total", "name", "capability", "power_limit")

_MEMORY: tuple[Metric[int], ...] = (
    memory.mem_peak_allocated,
    memory.mem_peak_reserved,
    memory.mem_params,
    memory.mem_grads,
    memory.mem_optim,
    memory.mem_activations,
    memory.mem_nontorch,
    host.host_rss,
)

_MACHINE: tuple[Metric[float], ...] = (
    hardware.gpu_utilization,
    hardware.sm_active,
    hardware.tensor_active,
    hardware.sm_clock_ratio,
    hardware.gpu_power,
    host.process_cpu,
    host.worker_cpu,
    host.others_cpu,
)


def _overall(rows: Sequence[Row], between: Sequence[Row], crowded: str) -> Verdict:
    """Of the first of the rows that is clear: the mean step with what falls between steps, where a few saves leave that
    unclear the mean step, where stalls do the typical one - unless what falls between steps says otherwise.

    That a run is slower is not told where other programs took its cores.
    """
    told = next((row.verdict for row in rows if row.verdict and row.verdict is not Verdict.UNCLEAR), Verdict.UNCLEAR)
    against = {row.verdict for row in between} & {Verdict.BETTER, Verdict.WORSE} - {told}
    if against and rows[0].verdict is Verdict.UNCLEAR:
        return Verdict.UNCLEAR
    return Verdict.UNCLEAR if (told, crowded) in ((Verdict.WORSE, "B"), (Verdict.BETTER, "A")) else told


def _crowded(before: Metrics, after: Metrics) -> str:
    """Where the machine is full in both runs, others only take what the program leaves."""
    a, b = _load(before), _load(after)
    if a is None or b is None or (a[1] >= FULL) == (b[1] >= FULL) or abs(a[0] - b[0]) < CROWDED:
        return ""
    return "A" if a[1] >= FULL and a[0] > b[0] else "B" if b[1] >= FULL and b[0] > a[0] else ""


def _load(m: Metrics) -> tuple[float, float] | None:
    """Shares of the machine's cores in use: by others, and by all."""
    others, program, workers = (m.get(one) for one in (host.others_cpu, host.process_cpu, host.worker_cpu))
    if others is None or program is None:
        return None
    cores = m[host.run].cores_total
    return others / cores, (others + program + (workers or 0.0)) / cores


@dataclass(frozen=True, slots=True)
class _Both:
    """Makes rows."""

    before: Metrics
    after: Metrics
    scale: float
    relevant: float
    few: bool

    def times(self, name: str, of: Callable[[Metrics], Interval], label: str = "") -> Row:
        """Seconds, judged beside the first run's step."""
        before, after = _known(self.before, of), _known(self.after, of)
        if after is not None:
            after = Interval(*(self.scale * value for value in (after.low, after.estimate, after.high)))
        whole = self.before.get(step.step_time_mean)
        change = None
        if before and after and whole:
            by = difference(before, after)
            change = Interval(by.low / whole, by.estimate / whole, by.high / whole)
        return Row(
            name=name,
            label=label or name.replace("_", " "),
            unit="s",
            before=before.estimate if before else None,
            after=after.estimate if after else None,
            change=change,
            verdict=Verdict.NOT_MEASURED
            if change is None
            else Verdict.TOO_FEW
            if self.few
            else verdict(change, self.relevant),
        )

    def whole(self, mean: Row, between: Sequence[Row]) -> Row | None:
        """The mean step and its part of what falls between steps, as far as both runs tell; None where nothing does."""
        parts = [mean, *(row for row in between if row.is_measured and row.change)]
        if len(parts) == 1 or mean.change is None:
            return None
        changes = [row.change for row in parts if row.change]
        estimate = math.fsum(one.estimate for one in changes)
        below = math.hypot(*(one.estimate - one.low for one in changes))
        above = math.hypot(*(one.high - one.estimate for one in changes))
        change = Interval(estimate - below, estimate, estimate + above)
        return Row(
            name="whole_step_time",
            label="mean, with what is between",
            unit="s",
            before=math.fsum(row.before or 0.0 for row in parts),
            after=math.fsum(row.after or 0.0 for row in parts),
            change=change,
            verdict=Verdict.TOO_FEW if self.few else verdict(change, self.relevant),
        )

    def amount(self, one: Metric[int]) -> Row:
        """Bytes: a peak is one number, so nothing but its size says whether it matters."""
        before, after = self.before.get(one), self.after.get(one)
        change, found = None, Verdict.NOT_MEASURED
        if before is not None and after is not None:
            by = (after - before) / before if before else math.inf if after else 0.0
            change, found = Interval(by, by, by), verdict(Interval(by, by, by), self.relevant)
        return Row(
            name=one.name,
            label=one.label,
            unit=one.unit or "",
            before=before,
            after=after,
            change=change,
            verdict=found,
        )

    def shown(self, one: Metric[float], *, times: bool = False) -> Row:
        """Only shown."""
        after = self.after.get(one)
        return Row(
            name=one.name,
            label=one.label,
            unit=one.unit or "",
            before=self.before.get(one),
            after=after if after is None or not times else self.scale * after,
        )


def _known(m: Metrics, of: Callable[[Metrics], Interval]) -> Interval | None:
    try:
        return of(m)
    except Missing:
        return None


def _mean(m: Metrics) -> Interval:
    value, bounds = m[step.step_time_mean], m.get(step.step_time_ci)
    return _widened(m, m[step.steady_steps], Interval(bounds[0], value, bounds[1])) if bounds else unbounded(value)


def _typical(m: Metrics) -> Interval:
    m[step.step_time_mean]  # Missing where there is no step
    try:
        value, half = step.typical_step(m)
    except Missing:
        return unbounded(m[step.step_time_p50])
    return _widened(m, m[step.steady_steps], Interval(value - half, value, value + half))


def _phase(name: str) -> Callable[[Metrics], Interval]:
    def of(m: Metrics) -> Interval:
        measured = m[step.phase_seconds]
        if name not in measured:
            raise Missing(f"{name} was not measured", "")
        return _around(m, m[step.steady_steps], name, measured[name])

    return of


def _between(name: str) -> Callable[[Metrics], Interval]:
    """Seconds of a step, over all steps but the first: what comes before it is the same however long a run is."""

    def of(m: Metrics) -> Interval:
        steps = [each for each in m[primary_rank].steps if not each.tags & TAG_FIRST]
        measured = [each.count * value for each in steps if (value := getattr(each, name)) is not None]
        if not measured:
            raise Missing(f"{name} was not measured", "")
        return _around(m, steps, name, math.fsum(measured) / sum(each.count for each in steps))

    return of


def _around(m: Metrics, steps: Sequence[Step], name: str, mean: float) -> Interval:
    try:
        low, high = step.mean_interval(m, steps, [getattr(each, name) or 0.0 for each in steps])
    except Missing:
        return unbounded(mean)
    return _widened(m, steps, Interval(min(low, mean), mean, max(high, mean)))


def _widened(m: Metrics, steps: Sequence[Step], interval: Interval) -> Interval:
    return for_few(interval, len(steps) / step.block_length(m, steps))


def _side(m: Metrics, folder: str) -> Side:
    run = m.profile.runs[0]
    batch, batches = m.get(loader), m.get(step.batches_per_step)
    ranks = m.get(data_parallel_size) or 1
    samples = batch.batch_size * batches * ranks if batch and batch.batch_size and batches else None
    return Side(
        folder=folder,
        command=run.command,
        ended=run.outcome,
        steps=m.get(step.steady_step_count) or 0,
        samples=samples,
        ranks=m.get(world_size),
    )


def _scale(before: Side, after: Side) -> float:
    if not before.samples or not after.samples:
        return 1.0
    ratio = before.samples / after.samples
    return ratio if abs(math.log(ratio)) > SAMPLES_DIFFER else 1.0


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, Verdict):
        return value.value
    return None if isinstance(value, float) and not math.isfinite(value) else value
