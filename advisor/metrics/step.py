"""Where a training step's time goes: steady steps of the primary rank only.

A share is exposed time of a phase over the time of the step. CPU-only runs use host times, as recorded.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from advisor import significance
from advisor.metrics.base import Metrics, Missing, Need, Threshold, metric
from advisor.metrics.quantiles import quantile
from advisor.metrics.settings import gpu_need, primary_rank, world_size
from profiler.schema import (
    BETWEEN,
    PHASES,
    TAG_CHECKPOINT,
    TAG_EPOCH_START,
    TAG_EVALUATION,
    TAG_FIRST,
    Step,
)
from profiler.sketch import Quantiles

WARM_UP = 10
"""Steps dropped at least: allocator, cuDNN and caches settle within them."""
SETTLED = 0.03
"""Warm-up ends when the median of ten steps moves by less than this from the ten before."""
WINDOW = 10
"""Steps a median is taken over, for that."""
LARGEST_WARM_UP = 0.5
"""Share of a run that may be called warm-up: a short or restless run still has steady steps."""
FEW = 10
"""With fewer untagged steps, those tagged only for work between steps count too: that work is not in `duration`."""
MIN_STEPS = Threshold(
    30, "Of 30 steps the 95 % interval of the median reaches from the 10th to the 21st; of 20 it holds half of them."
)
FEWEST = 5
"""Steady steps that an interval needs at least."""
TRIMMED = 0.1
"""Share of the steps left out at either end for the typical step."""

_NAMES = {
    "duration": "The time of steps",
    "micro_steps": "The number of backward passes",
    "batches": "The number of batches",
    "fetch_host": "The host's time in fetching batches",
    "data_wait": "Waiting for data",
    "loader_overhead": "Taking batches from the loader",
    "h2d": "Copying to the GPU",
    "communication": "Communication between GPUs",
    "sync": "Synchronising with the GPU",
    "gc": "Garbage collection",
    "forward": "The forward pass",
    "backward": "The backward pass",
    "optimizer": "The optimizer's update",
    "other": "The rest of the step",
}
"""Columns of a step, as a sentence begins with them."""

_GPU_REMEDY = "Run on a GPU: on a CPU this is part of the other phases."
_REMEDIES = {
    "data_wait": "Feed the loop from a torch.utils.data.DataLoader.",
    "loader_overhead": "Feed the loop from a torch.utils.data.DataLoader.",
    "h2d": _GPU_REMEDY,
    "communication": "Run on several ranks, on GPUs.",
    "sync": _GPU_REMEDY,
}


@metric(None)
def steady_steps(m: Metrics) -> tuple[Step, ...]:
    """The steps that speak for the rest of the training: untagged, and after warm-up.

    Warm-up is the first 10 untagged steps, longer while the median of ten steps still moves by 3 % or more from the ten
    before, never more than half of them. Runs with fewer than 10 untagged steps (epochs of a few batches, an
    evaluation a step) also use the steps tagged for an epoch start, an evaluation or a save.
    """
    return steady(m[primary_rank].steps)


def steady(steps: Sequence[Step]) -> tuple[Step, ...]:
    """The same of any one process."""
    plain = ordinary(steps)
    return tuple(plain[_warm_up(plain) :])


def ordinary(steps: Sequence[Step]) -> list[Step]:
    """The same, warm-up included."""
    if not steps:
        raise Missing(
            "No training step was seen",
            "Let the run reach an optimizer step; a loop without a torch optimizer calls profiler.step() once a step.",
        )
    plain = [step for step in steps if not step.tags]
    if sum(step.count for step in plain) < FEW:
        between = TAG_EPOCH_START | TAG_EVALUATION | TAG_CHECKPOINT
        plain = [step for step in steps if not step.tags & ~between]
    if (
        not plain
    ):  # nothing but steps that started, compiled or were profiled: the first has no start to be measured from
        plain = [step for step in steps if not step.tags & TAG_FIRST]
    if not plain:
        raise Missing("The run ended in its first step", "Record more steps: 100 or so give a steady picture.")
    return plain


def _warm_up(steps: Sequence[Step]) -> int:
    """How many rows to drop."""
    durations = [step.duration for step in steps]
    settled = 0
    while settled + 2 * WINDOW <= len(steps):
        before = median(durations[settled : settled + WINDOW])
        after = median(durations[settled + WINDOW : settled + 2 * WINDOW])
        if abs(after - before) < SETTLED * before:
            break
        settled += 1
    number = sum(step.count for step in steps)
    wanted = min(max(WARM_UP, sum(step.count for step in steps[:settled])), LARGEST_WARM_UP * number)
    rows, dropped = 0, 0
    while rows < len(steps) - 1 and dropped + steps[rows].count <= wanted:
        dropped += steps[rows].count
        rows += 1
    return rows


@metric(None)
def steady_window(m: Metrics) -> tuple[float, float]:
    """From the start of the first steady step to the end of the last, on the run clock."""
    steps = m[steady_steps]
    last = steps[-1]
    return steps[0].start, last.start + last.count * (last.duration + time_between(last))


@metric("count", "steady steps")
def steady_step_count(m: Metrics) -> int:
    """Steady steps: what every mean here rests on."""
    return sum(step.count for step in m[steady_steps])


@metric("s", "mean step time")
def step_time_mean(m: Metrics) -> float:
    """Mean time of a steady step, without evaluation, saving and epoch starts. What a run costs follows the mean."""
    return _mean(m, "duration")


@metric("s", "median step time")
def step_time_p50(m: Metrics) -> float:
    """Median time of a step."""
    return _quantile(m, 0.5)


@metric("s", "90th percentile of the step time")
def step_time_p90(m: Metrics) -> float:
    """Nine of ten steps take no longer than this."""
    return _quantile(m, 0.9)


@metric("s", "99th percentile of the step time")
def step_time_p99(m: Metrics) -> float:
    """99 of 100 steps take no longer than this."""
    return _quantile(m, 0.99)


@metric("1", "relative spread of the step time")
def step_time_cv(m: Metrics) -> float:
    """Standard deviation of the step time over its mean; a lower bound where neighbours were merged to their mean."""
    steps = m[steady_steps]
    mean = m[step_time_mean]
    number = sum(step.count for step in steps)
    if number < 2:
        raise Missing("One steady step has no spread", "Record more steps.")
    squares = sum(step.count * (step.duration - mean) ** 2 for step in steps)
    return math.sqrt(squares / (number - 1)) / mean


@metric(None)
def step_time_ci(m: Metrics) -> tuple[float, float]:
    """The interval that holds the mean step time with 95 %, in seconds, by moving-block bootstrap (Kuensch 1989).

    Neighbouring steps resemble one another, so whole blocks of max(5, n^(1/3), batches in flight) steps are drawn.
    """
    low, high = mean_interval(m, m[steady_steps], [step.duration for step in m[steady_steps]])
    # Blocks reach the first and last steps less often than the others, which can push the interval off the mean.
    return min(low, m[step_time_mean]), max(high, m[step_time_mean])


@metric("1", "uncertainty of the mean step time")
def step_time_uncertainty(m: Metrics) -> float:
    """Half the width of the mean step time's 95 % interval over the mean."""
    low, high = m[step_time_ci]
    return (high - low) / 2 / m[step_time_mean]


@metric("1", "uncertainty of the typical step time")
def typical_step_uncertainty(m: Metrics) -> float:
    """Half the width of the 95 % interval of the 10 % trimmed mean, over that mean: it is the mean without the shortest
    and the longest tenth of the steps, which single stalls of the machine do not move.

    From the winsorized times, whose spread over 1 - 2 x 10 % is that of the trimmed mean (Tukey and McLaughlin 1963).
    """
    mean, half = typical_step(m)
    return half / mean


def typical_step(m: Metrics) -> tuple[float, float]:
    """The 10 % trimmed mean of the step time and half the width of its 95 % interval, seconds."""
    steps = m[steady_steps]
    weighted = [(step.duration, step.count) for step in steps]
    least, most = (quantile(weighted, q) for q in (TRIMMED, 1 - TRIMMED))
    kept = [(duration, count) for duration, count in weighted if least <= duration <= most]
    mean = sum(duration * count for duration, count in kept) / sum(count for _, count in kept)
    low, high = mean_interval(m, steps, [min(max(step.duration, least), most) for step in steps])
    return mean, (high - low) / 2 / (1 - 2 * TRIMMED)


def block_length(m: Metrics, steps: Sequence[Step]) -> int:
    """Rows that hang together, the batches in flight among them; of few rows a quarter."""
    in_flight = max((fact.num_workers * (fact.prefetch_factor or 2) for fact in m[primary_rank].loaders), default=0)
    block = significance.block_length(len(steps), in_flight)
    return block if len(steps) >= 2 * block else len(steps) // 4


def mean_interval(m: Metrics, steps: Sequence[Step], values: Sequence[float]) -> tuple[float, float]:
    """95 % interval of the mean of these values, one for each of the steps."""
    if len(steps) < FEWEST:
        raise Missing(f"Fewer than {FEWEST} steady steps", "Record more: 100 or so give a narrow interval.")
    return significance.mean_interval(values, block_length(m, steps), [step.count for step in steps])


@metric("count", "backward passes in a step")
def micro_steps_per_step(m: Metrics) -> float:
    """Backward passes for an optimizer update: above 1, gradients are accumulated."""
    return _mean(m, "micro_steps")


@metric("count", "batches in a step")
def batches_per_step(m: Metrics) -> float:
    """Training batches fetched for an optimizer update."""
    return _mean(m, "batches")


@metric("1", "share of the step waiting for data")
def data_wait_fraction(m: Metrics) -> float:
    """Share of the step in `next(loader)` while no batch was ready: the time the input costs."""
    return _fraction(m, "data_wait")


@metric("1", "share of the step taking batches that were ready")
def loader_overhead_fraction(m: Metrics) -> float:
    """Share of the step in `next(loader)` although a batch was ready: dequeuing, unpickling, hand-off if pinned."""
    return _fraction(m, "loader_overhead")


@metric("1", "share of the step the host spends fetching")
def data_wait_host_fraction(m: Metrics) -> float:
    """Share of the step the host spends in `next(loader)`; no stall while the GPU still has work queued."""
    return _part(m, "fetch_host", _REMEDIES["data_wait"]) / _part(m, "duration", "")


@metric("1", "share of the step copying to the GPU")
def h2d_fraction(m: Metrics) -> float:
    """Share of the step in exposed host-to-device copies; from the profiler's windows if steps do not tell."""
    return _fraction_or_of_windows(m, "h2d", "h2d")


@metric("1", "share of the step in the forward pass")
def forward_fraction(m: Metrics) -> float:
    """Share of the step in the forward pass."""
    return _fraction(m, "forward")


@metric("1", "share of the step in the backward pass")
def backward_fraction(m: Metrics) -> float:
    """Share of the step in the backward pass."""
    return _fraction(m, "backward")


@metric("1", "share of the step in the optimizer")
def optimizer_fraction(m: Metrics) -> float:
    """Share of the step in the optimizer's update."""
    return _fraction(m, "optimizer")


@metric("1", "share of the step in exposed communication")
def exposed_comm_fraction(m: Metrics) -> float:
    """Share of the step in collectives that nothing hides; from the profiler's windows if steps do not tell."""
    return _fraction_or_of_windows(m, "communication", "communication_exposed")


@metric("1", "share of the step in synchronising")
def sync_fraction(m: Metrics) -> float:
    """Share of the step in which the GPU is idle because the host waited for it (`.item()`, `.cpu()`, prints).

    From the profiler's windows if steps do not tell.
    """
    return _fraction_or_of_windows(m, "sync", "idle_sync")


@metric("1", "share of the step in garbage collection")
def gc_fraction(m: Metrics) -> float:
    """Share of the step in Python's garbage collector."""
    return _fraction(m, "gc")


@metric("1", "share of the step in everything else")
def other_fraction(m: Metrics) -> float:
    """The remainder of the step: loss, logging, metrics, callbacks, the loop itself."""
    return _fraction(m, "other")


@metric(None)
def phase_seconds(m: Metrics) -> dict[str, float]:
    """Seconds of each measured phase in the mean steady step; they sum to `step_time_mean`.

    A phase that only some of the steps measured counts as none in the others: there its time is in their other phases.
    """
    return mean_phases(m[steady_steps])


@metric(None)
def phase_seconds_by_rank(m: Metrics) -> dict[int, dict[str, float]]:
    """The same of each rank that made steps, by its number."""
    return {rank.process.rank: mean_phases(steady(rank.steps)) for rank in m.profile.ranks if rank.steps}


def mean_phases(steps: Sequence[Step]) -> dict[str, float]:
    """Seconds of each phase that any of the steps measured, in the mean of them."""
    count = sum(step.count for step in steps)
    told = _with_phases(steps)
    duration = summed(told, "duration") or 0.0
    # Steps whose phases nobody measured are taken to be like the others.
    mean = (summed(steps, "duration") or 0.0) / duration / count if duration else 0.0
    sums = {phase: summed(told, phase) for phase in PHASES}
    return {phase: total * mean for phase, total in sums.items() if total is not None}


def _with_phases(steps: Sequence[Step]) -> Sequence[Step]:
    """Those of which any phase was measured: on a GPU the marks of a step may be missing."""
    return [step for step in steps if any(getattr(step, phase) is not None for phase in PHASES)]


def summed(steps: Sequence[Step], name: str) -> float | None:
    """Seconds (or whatever the column holds) over all rows; None if no row has it."""
    values = [step.count * value for step in steps if (value := getattr(step, name)) is not None]
    return math.fsum(values) if values else None


def _part(m: Metrics, name: str, remedy: str) -> float:
    steps = m[steady_steps]
    total = summed(steps, name)
    if total is None:
        raise Missing(f"{_NAMES[name]} was not measured", remedy, _need(m, name))
    return total


def _need(m: Metrics, name: str) -> Need:
    if name == "communication" and m.get(world_size) == 1:
        return Need.RANKS
    return gpu_need(m) if name in ("h2d", "sync", "communication") else Need.RUN


def _mean(m: Metrics, name: str) -> float:
    return _part(m, name, "") / m[steady_step_count]


def _fraction(m: Metrics, phase: str) -> float:
    if _part(m, "duration", "") <= 0:
        raise Missing("The steps took no time", "Record the run anew; if it recurs, report it as a bug.")
    part = _part(m, phase, _REMEDIES.get(phase, "Record more steps; see the problems in the report."))
    return part / (summed(_with_phases(m[steady_steps]), "duration") or part)


def _fraction_or_of_windows(m: Metrics, phase: str, column: str) -> float:
    """Without a phase of their own these moments are part of the others; then the windows' share of them stands."""
    try:
        return _fraction(m, phase)
    except Missing:
        windows = [window for window in m[primary_rank].windows if window.device == "cuda"]
        seconds = [value for window in windows if (value := getattr(window, column)) is not None]
        if not seconds:
            raise
        return float(sum(seconds)) / sum(window.duration for window in windows)


def time_between(step: Step) -> float:
    """Seconds of what falls between it and the next."""
    return sum(getattr(step, name) or 0.0 for name in BETWEEN)


def _quantile(m: Metrics, q: float) -> float:
    """From single steps; where neighbours were merged, from the sketch of the whole run."""
    steps = m[steady_steps]
    sketch = next((sketch for sketch in m[primary_rank].sketches if sketch.quantity == "duration"), None)
    if sketch is not None and any(step.count > 1 for step in steps):
        value = Quantiles.from_sketch(sketch).quantile(q)
        if value is not None:
            return value
    return quantile([(step.duration, step.count) for step in steps], q)
