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
    times = (*map(_end, steps[-1:]), *(one.time for one in profile.host_samples[-1:]))
    now = max(filter(math.isfinite, times), default=0.0)
    samples = defaultdict[int, list[GpuSample]](list)
    for sample in profile.gpu_samples:
        samples[sample.gpu].append(sample)
    looked_at = m
    if rank and stacks is not None:
        looked_at = Metrics(replace(profile, ranks=(replace(rank, stacks=tuple(stacks)),)))
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
        lines=_lines(looked_at),
        advice=advice,
    )


def advised(judgment: Judgment) -> Advised | None:
    """Return the first advice above information; None if there is none."""
    first = next((found for found in judgment.findings if found.severity.value != "info"), None)
    if first is None:
        return None
    return Advised(first.rule.id, first.advice.title or first.rule.title, first.advice.then, first.in_plan)


def newest(stacks: Sequence[Stack], before: Sequence[Stack]) -> tuple[Stack, ...]:
    """Return what was added to the sums of stacks since they were `before`."""
    old = {row.id: row for row in before}
    added = []
    for row in stacks:
        if (then := old.get(row.id)) is None:
            added.append(row)
        elif row.samples > then.samples:
            added.append(replace(row, total=row.total - then.total, samples=row.samples - then.samples))
    return tuple(added)


def _lines(m: Metrics) -> tuple[HotPlace, ...]:
    if (m.get(stack_samples) or 0) < LEAST_SAMPLES:
        return ()
    known = (place for place in m[hot_places] if place.phase not in ("backward", "optimizer"))
    return tuple(place for place in known if place.low >= NAMED_LOW / 2)[:MOST_LINES]


def _steps(steps: Sequence[Step], now: float) -> StepsNow:
    shown = [step for step in steps if _end(step) > now - RECENT and not step.tags & TAG_FIRST]
    number = sum(step.count for step in shown)
    first = _end(steps[0]) if steps[0].tags & TAG_FIRST else steps[0].start  # the first step has no defined start
    since = max(now - RECENT, first)
    done = sum(_share(step, since, now) * step.count for step in shown)
    return StepsNow(
        count=sum(step.count for step in steps),
        rate=done / (now - since) if shown and now > since else None,
        mean=_mean(shown, number, "duration"),
        phases={phase: _mean(shown, number, phase) for phase in PHASES},
        between=sum(_mean(shown, number, name) or 0.0 for name in BETWEEN) if shown else None,
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
    last = _end(step)
    inside = min(last, end) - max(step.start, begin)
    return max(0.0, inside) / (last - step.start) if last > step.start else float(begin <= last < end)


def _rates(steps: Sequence[Step], now: float) -> Curve:
    """Return steps per second, one value per second; None before the first step."""
    first, start = steps[0].start, now - SPAN
    done = [0.0] * SPAN
    for step in reversed(steps):
        last = _end(step)
        if last <= start:
            break
        for second in range(max(0, int(step.start - start)), min(SPAN - 1, int(last - start)) + 1):
            done[second] += step.count * _share(step, start + second, start + second + 1)
    return tuple(value if start + second + 1 > first else None for second, value in enumerate(done))


def _gauge(samples: Iterable[Any], now: float, value: Callable[[Any], float | None], of: float | None) -> Gauge:
    """Return the mean of each second; the current value is the latest of the last three seconds."""
    start = now - SPAN
    seconds: list[list[float]] = [[] for _ in range(SPAN)]
    for sample in samples:
        measured = value(sample)
        if measured is not None and start < sample.time < math.inf:
            seconds[min(SPAN - 1, int(sample.time - start))].append(measured)
    curve = tuple(math.fsum(each) / len(each) if each else None for each in seconds)
    return Gauge(next((each for each in reversed(curve[-3:]) if each is not None), None), of, curve)
