"""Draw a run over time: the few curves of the report, thinned so that the page stays small."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Literal, TypeVar

from advisor.runs.profile import Profile, Rank
from profiler import schema
from profiler.grouping import grouped

MOST_POINTS = 2_000
"""Most points of one curve, more than a wide screen has columns."""
MOST_POINTS_TOGETHER = 24_000
"""Most points of all curves: about 0.3 MB of the page, whose limit is 2 MB."""
MOST_CURVES = 8
"""Most curves of one kind. One chart cannot distinguish more ranks or GPUs."""

# Labels in the legend for steps that are not steady; the first match applies.
TAGGED = (
    (schema.TAG_EPOCH_START, "epoch start"),
    (schema.TAG_EVALUATION, "with evaluation"),
    (schema.TAG_CHECKPOINT, "with a checkpoint"),
    (schema.TAG_WINDOW, "while profiling kernels"),
    (schema.TAG_COMPILE, "while compiling"),
)

WAITING = "waiting for data"
"""Start of the label of the curve that has the color for waiting."""

Row = TypeVar("Row")
Value = float | int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One quantity over the run clock. None is a gap."""

    label: str
    times: tuple[float, ...]
    values: tuple[float | None, ...]
    kind: Literal["line", "points"] = "line"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Curves that share a unit."""

    title: str
    unit: Literal["s", "1", "cores", "B"]
    curves: tuple[Curve, ...]
    limit: float | None = None
    limit_label: str = ""


def charts(profile: Profile, names: Mapping[int, str] | None = None) -> tuple[Chart, ...]:
    """Return what was measured over time; a chart without a single point is left out.

    `names` maps the ranks to draw to a label next to their number. Without it, the first ones are drawn.
    """
    step_time = _step_time(profile, names or {})
    all_charts = (step_time, _gpu(profile), _cpu(profile), _gpu_memory(profile), _host_memory(profile))
    measured_charts = [chart for chart in all_charts if chart.curves]
    count = sum(len(chart.curves) for chart in measured_charts)
    limit = min(MOST_POINTS, MOST_POINTS_TOGETHER // max(1, count))
    return tuple(replace(c, curves=tuple(thinned(curve, limit) for curve in c.curves)) for c in measured_charts)


def thinned(curve: Curve, limit: int) -> Curve:
    """Return the curve thinned to at most `limit` points.

    The lowest and the highest point of each stretch are kept, so that no spike is lost.
    """
    total = len(curve.times)
    if total <= limit:
        return curve
    stretches = max(1, limit // 2)
    kept_indices: list[int] = []
    for part in range(stretches):
        indices = range(part * total // stretches, (part + 1) * total // stretches)
        points = [(value, i) for i in indices if (value := curve.values[i]) is not None]
        kept_indices += sorted({min(points)[1], max(points)[1]}) if points else [indices[0]]
    return replace(
        curve, times=tuple(curve.times[i] for i in kept_indices), values=tuple(curve.values[i] for i in kept_indices)
    )


def _step_time(profile: Profile, names: Mapping[int, str]) -> Chart:
    curves: list[Curve] = []
    several = len(profile.ranks) > 1
    ranks = [rank for rank in profile.ranks if not names or rank.process.rank in names]
    for rank in ranks[:MOST_CURVES]:
        label = f"rank {rank.process.rank}{names.get(rank.process.rank, '')}" if several else "step"
        steady_steps = [step for step in rank.steps if not step.tags]
        curves += _curve(label, steady_steps, lambda step: step.duration, _when(rank))
    if profile.ranks:
        first_rank = profile.ranks[0]
        steady_steps = [step for step in first_rank.steps if not step.tags]
        waiting_label = f"{WAITING}{_whose(profile)}"
        curves += _curve(waiting_label, steady_steps, lambda step: step.data_wait, attrgetter("start"))
        curves += _tagged(first_rank)
    return Chart(title="Step time", unit="s", curves=tuple(curves))


def _whose(profile: Profile) -> str:
    """Return the label suffix of a curve drawn for the first of several ranks alone."""
    return f" (rank {profile.ranks[0].process.rank})" if len(profile.ranks) > 1 else ""


def _when(rank: Rank) -> Callable[[schema.Step], float]:
    """Return the start of a step on the clock of the first recording."""
    return lambda step: rank.clock(step.start)


def _tagged(rank: Rank) -> Iterable[Curve]:
    by_label = grouped(rank.steps, lambda step: next((label for tag, label in TAGGED if step.tags & tag), None))
    for label, steps in by_label.items():
        if label:
            yield from _curve(label, steps, lambda step: step.duration, attrgetter("start"), kind="points")


def _gpu(profile: Profile) -> Chart:
    curves: list[Curve] = []
    several = len(profile.gpus) > 1
    for gpu, samples in _telling(profile):
        prefix = f"GPU {gpu.index} " if several else ""
        curves += _curve(f"{prefix}utilization", samples, lambda sample: sample.utilization)
        if not several:
            curves += _curve("SMs active", samples, lambda sample: sample.sm_active)
            curves += _curve("tensor cores active", samples, lambda sample: sample.tensor_active)
    return Chart(title="GPU", unit="1", curves=tuple(curves))


def _telling(profile: Profile) -> list[tuple[schema.Gpu, list[schema.GpuSample]]]:
    """Return the GPUs and their samples.

    If there are many, these are the busiest, the median and the idlest GPU, and the one with the lowest clock.
    """
    samples = grouped(profile.gpu_samples, attrgetter("gpu"))
    all_gpus = [(gpu, samples.get(gpu.index, [])) for gpu in profile.gpus]
    if len(all_gpus) <= MOST_CURVES:
        return all_gpus
    ordered = sorted(all_gpus, key=lambda pair: _mean([sample.utilization for sample in pair[1]]))
    slowest = min(all_gpus, key=lambda pair: _mean([sample.sm_clock for sample in pair[1]]))
    selection = (ordered[0], ordered[len(ordered) // 2], ordered[-1], slowest)
    return list({gpu.index: (gpu, gpu_samples) for gpu, gpu_samples in selection}.values())


def _mean(values: Iterable[Value]) -> float:
    """Return the mean of the measured values; infinity if none was measured."""
    numbers = [value for value in values if value is not None]
    return sum(numbers) / len(numbers) if numbers else float("inf")


def _cpu(profile: Profile) -> Chart:
    samples = profile.host_samples
    curves = [
        *_curve("program", samples, lambda sample: sample.cpu),
        *_curve("of that, DataLoader workers", samples, lambda sample: sample.cpu_workers),
        *_curve("whole machine", samples, lambda sample: sample.machine_cpu),
    ]
    limit = profile.runs[0].cores if profile.runs else None
    return Chart(title="CPU", unit="cores", curves=tuple(curves), limit=limit, limit_label="allowed")


def _gpu_memory(profile: Profile) -> Chart:
    curves: list[Curve] = []
    for gpu, samples in _telling(profile):
        prefix = f"GPU {gpu.index}: " if len(profile.gpus) > 1 else ""
        curves += _curve(f"{prefix}used on the GPU", samples, lambda sample: sample.memory_used)
    if profile.ranks:
        memory, whose = profile.ranks[0].memory_samples, _whose(profile)
        curves += _curve(f"allocated by tensors{whose}", memory, lambda sample: sample.allocated)
        curves += _curve(f"reserved by PyTorch{whose}", memory, lambda sample: sample.reserved)
    limit = max((gpu.memory_total for gpu in profile.gpus), default=None)
    return Chart(title="GPU memory", unit="B", curves=tuple(curves), limit=limit)


def _host_memory(profile: Profile) -> Chart:
    samples = profile.host_samples
    curves = [
        *_curve("program and its workers", samples, lambda sample: sample.rss),
        *_curve("still available", samples, lambda sample: sample.memory_available),
    ]
    return Chart(title="Host memory", unit="B", curves=tuple(curves))


def _curve(
    label: str,
    rows: Sequence[Row],
    value: Callable[[Row], Value],
    time: Callable[[Row], float] = attrgetter("time"),
    kind: Literal["line", "points"] = "line",
) -> Iterable[Curve]:
    """Yield the curve, or nothing if none of its values was measured."""
    values = tuple(value(row) for row in rows)
    if any(v is not None for v in values):
        yield Curve(label=label, times=tuple(time(row) for row in rows), values=values, kind=kind)
