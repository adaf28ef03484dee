"""Take a snapshot of a run at one moment."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from advisor.judging.judge import Estimate, Judgment
from advisor.metrics.base import Metrics
from advisor.metrics.lines import HotPlace, hot_places, stack_samples
from advisor.metrics.settings import primary_rank, world_size
from advisor.metrics.step import length
from advisor.report.code import LEAST_SAMPLES, NAMED_LOW
from advisor.runs.profile import Profile
from profiler.schema import BETWEEN, PHASES, TAG_FIRST, GpuSample, Outcome, Stack, Step

SCHEMA = "profile-train/watch@1"

RECENT = 30.0
"""Seconds over which the current step rate and phases are measured."""

SPAN = 120
"""Length of curves in seconds, with one value per second; None is not measured."""

MOST_LINES = 3
"""Hot lines kept of the newest stacks."""

OF_A_LINE = ("name", "file", "line", "phase", "share", "samples")
"""Fields of a hot line in JSON."""

MOST_GPUS = 64
"""Most GPUs shown, the first ones: more than a terminal has lines."""

Curve = tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class StepsNow:
    """Steps of the primary rank; times in seconds. None: no step in the last RECENT seconds."""

    count: int
    rate: float | None
    """Steps per second."""
    mean: float | None
    phases: dict[str, float | None]
    """Seconds of each phase in the mean step; None: not measured."""
    between: float | None
    """Seconds of evaluation, checkpoints and epoch starts per step."""
    rates: Curve
    silent: float
    """Seconds since the end of the last step."""


@dataclass(frozen=True, slots=True)
class Gauge:
    """A quantity now and over time. None: not measured."""

    now: float | None
    of: float | None
    """The amount available."""
    curve: Curve


@dataclass(frozen=True, slots=True)
class GpuNow:
    """One GPU at one moment."""

    index: int
    name: str
    utilization: Gauge
    memory: Gauge


@dataclass(frozen=True, slots=True)
class Advised:
    """The first piece of advice if the run ended now."""

    rule: str
    title: str
    then: str
    gain: Estimate | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Everything that `watch` shows at one moment."""

    folder: str
    command: tuple[str, ...]
    ended: Outcome
    time: float
    """Seconds on the run clock of the newest record."""
    ranks: int
    steps: StepsNow | None
    gpus: tuple[GpuNow, ...]
    cpu: Gauge
    """CPU use in cores."""
    memory: Gauge
    """Bytes of the program's processes."""
    lines: tuple[HotPlace, ...] = ()
    """The hottest lines of the newest stacks; empty without enough samples."""
    advice: Advised | None = None

    @property
    def is_over(self) -> bool:
        """Return whether nothing more will be recorded."""
        return self.ended != "running"

    def result(self) -> dict[str, Any]:
        """Return the snapshot for JSON."""
        lines = [{name: getattr(line, name) for name in OF_A_LINE} for line in self.lines]
        return {"schema": SCHEMA, **asdict(self), "lines": lines}


def snapshot(
    profile: Profile, folder: str, advice: Advised | None = None, stacks: Sequence[Stack] | None = None
) -> Snapshot:
    """Return the snapshot of a profile; hot lines come from `stacks` if given, else from the whole run."""
    run = profile.runs[0]
    m = Metrics(profile)
    rank = m.get(primary_rank)
    # A store is not trusted: steps without a finite end are dropped.
    steps = [step for step in rank.steps if math.isfinite(_end(step)) and step.count > 0] if rank else []
    times = (*map(_end, steps[-1:]), *(host_sample.time for host_sample in profile.host_samples[-1:]))
    now = max(filter(math.isfinite, times), default=0.0)
    samples = defaultdict[int, list[GpuSample]](list)
    for sample in profile.gpu_samples:
        samples[sample.gpu].append(sample)
    line_metrics = m
    if rank and stacks is not None:
        line_metrics = Metrics(replace(profile, ranks=(replace(rank, stacks=tuple(stacks)),)))
    return Snapshot(
        folder=folder,
        command=run.command,
        ended=run.outcome,
        time=now,
        ranks=m.get(world_size) or 0,
        steps=_steps(steps, now) if steps else None,
        gpus=tuple(
            GpuNow(
                index=gpu.index,
                name=gpu.name,
                utilization=_gauge(samples[gpu.index], now, lambda sample: sample.utilization, 1.0),
                memory=_gauge(samples[gpu.index], now, lambda sample: sample.memory_used, gpu.memory_total or None),
            )
            for gpu in profile.gpus[:MOST_GPUS]
        ),
        cpu=_gauge(profile.host_samples, now, lambda sample: sample.cpu, run.cores),
        memory=_gauge(profile.host_samples, now, lambda sample: sample.rss, run.memory_total),
        lines=_lines(line_metrics),
        advice=advice,
    )


def advised(judgment: Judgment) -> Advised | None:
    """Return the first advice above information; None if there is none."""
    first = next((finding for finding in judgment.findings if finding.severity.value != "info"), None)
    if first is None:
        return None
    return Advised(first.rule.id, first.advice.title or first.rule.title, first.advice.then, first.in_plan)


def newest(stacks: Sequence[Stack], before: Sequence[Stack]) -> tuple[Stack, ...]:
    """Return what was added to the sums of stacks since they were `before`."""
    old_rows = {row.id: row for row in before}
    added_rows = []
    for row in stacks:
        if (old_row := old_rows.get(row.id)) is None:
            added_rows.append(row)
        elif row.samples > old_row.samples:
            added_rows.append(replace(row, total=row.total - old_row.total, samples=row.samples - old_row.samples))
    return tuple(added_rows)


def _lines(m: Metrics) -> tuple[HotPlace, ...]:
    if (m.get(stack_samples) or 0) < LEAST_SAMPLES:
        return ()
    places = (place for place in m[hot_places] if place.phase not in ("backward", "optimizer"))
    return tuple(place for place in places if place.low >= NAMED_LOW / 2)[:MOST_LINES]


def _steps(steps: Sequence[Step], now: float) -> StepsNow:
    recent_steps = [step for step in steps if _end(step) > now - RECENT and not step.tags & TAG_FIRST]
    step_count = sum(step.count for step in recent_steps)
    first_start = _end(steps[0]) if steps[0].tags & TAG_FIRST else steps[0].start  # the first step has no defined start
    since = max(now - RECENT, first_start)
    steps_done = sum(_share(step, since, now) * step.count for step in recent_steps)
    return StepsNow(
        count=sum(step.count for step in steps),
        rate=steps_done / (now - since) if recent_steps and now > since else None,
        mean=_mean(recent_steps, step_count, "duration"),
        phases={phase: _mean(recent_steps, step_count, phase) for phase in PHASES},
        between=sum(_mean(recent_steps, step_count, name) or 0.0 for name in BETWEEN) if recent_steps else None,
        rates=_rates(steps, now),
        silent=max(0.0, now - _end(steps[-1])),
    )


def _mean(steps: Sequence[Step], number: int, name: str) -> float | None:
    values = [step.count * value for step in steps if (value := getattr(step, name)) is not None]
    return math.fsum(values) / number if values else None


def _end(step: Step) -> float:
    return step.start + length(step)


def _share(step: Step, begin: float, end: float) -> float:
    """Return the share of the step's time between these two moments."""
    step_end = _end(step)
    overlap = min(step_end, end) - max(step.start, begin)
    return max(0.0, overlap) / (step_end - step.start) if step_end > step.start else float(begin <= step_end < end)


def _rates(steps: Sequence[Step], now: float) -> Curve:
    """Return steps per second, one value per second; None before the first step."""
    first_start, start = steps[0].start, now - SPAN
    counts = [0.0] * SPAN
    for step in reversed(steps):
        step_end = _end(step)
        if step_end <= start:
            break
        for second in range(max(0, int(step.start - start)), min(SPAN - 1, int(step_end - start)) + 1):
            counts[second] += step.count * _share(step, start + second, start + second + 1)
    return tuple(value if start + second + 1 > first_start else None for second, value in enumerate(counts))


def _gauge(samples: Iterable[Any], now: float, value: Callable[[Any], float | None], of: float | None) -> Gauge:
    """Return the mean of each second; the current value is the latest of the last three seconds."""
    start = now - SPAN
    seconds: list[list[float]] = [[] for _ in range(SPAN)]
    for sample in samples:
        reading = value(sample)
        if reading is not None and start < sample.time < math.inf:
            seconds[min(SPAN - 1, int(sample.time - start))].append(reading)
    curve = tuple(math.fsum(entry) / len(entry) if entry else None for entry in seconds)
    return Gauge(next((entry for entry in reversed(curve[-3:]) if entry is not None), None), of, curve)
