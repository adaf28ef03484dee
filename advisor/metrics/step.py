"""The time of a training step by phase, for the steady steps of the primary rank.

A phase's share is its exposed time divided by the step time. CPU-only runs use the recorded host times.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, median
from typing import TypeVar

from advisor.metrics.base import Metrics, Missing, Need, Threshold, metric
from advisor.metrics.settings import UNTIMED, gpu_need, is_trace, primary_rank, untimed, world_size
from advisor.metrics.weighted import measured, quantile, quantile_of_run, weighted_mean
from advisor.stats import significance
from profiler import schema
from profiler.schema import BETWEEN, PHASES, Step, Window

Sampled = TypeVar("Sampled", schema.GpuSample, schema.HostSample)

WARM_UP = 10
"""Minimum number of steps dropped; allocator, cuDNN and caches settle within them."""
SETTLED = 0.03
"""Warm-up ends when the median of ten steps differs by less than this share from the ten before."""
WINDOW = 10
"""Number of steps in such a median."""
LARGEST_WARM_UP = 0.5
"""Largest share of a run that counts as warm-up, so that a short or unstable run keeps steady steps."""
FEW = 10
"""Number of untagged steps below which steps with work between steps also count.

That work is not part of `duration`.
"""
MIN_STEPS = Threshold(
    30, "With 30 steps, the 95 % interval of the median spans the 10th to the 21st; with 20, it covers half of them."
)
FEWEST = 5
"""Minimum number of steady steps for an interval."""
TRIMMED = 0.1
"""Share of the steps left out at either end for the typical step."""

_FROM_LOADER = "Feed the loop from a torch.utils.data.DataLoader."
_ON_GPU = "Run on a GPU: on a CPU this is part of the other phases."
_MORE_STEPS = "Record more steps; see the problems listed in the report."
_COLUMNS = {
    "forwards": ("The number of calls of a model", ""),
    "fetch_host": ("The host's time for fetching batches", _FROM_LOADER),
    "data_wait": ("Waiting for data", _FROM_LOADER),
    "loader_overhead": ("Taking batches from the loader", _FROM_LOADER),
    "h2d": ("Copying to the GPU", _ON_GPU),
    "communication": ("Communication between GPUs", "Run on several ranks, on GPUs."),
    "sync": ("Synchronizing with the GPU", _ON_GPU),
    "gc": ("Garbage collection", _MORE_STEPS),
    "forward": ("The forward pass", _MORE_STEPS),
    "backward": ("The backward pass", _MORE_STEPS),
    "optimizer": ("The optimizer's update", _MORE_STEPS),
    "other": ("The rest of the step", _MORE_STEPS),
}
"""Columns of a step that may be without a value: their name at the start of a sentence, and how to measure them."""


@metric(None)
def steady_steps(m: Metrics) -> tuple[Step, ...]:
    """The steps that represent normal training: after warm-up, and without tags.

    Warm-up is the first 10 untagged steps. It lasts longer while the median of ten steps still differs by 3 % or more
    from the previous ten, but never more than half of the steps. If a run has fewer than 10 untagged steps (epochs of a
    few batches, or an evaluation after every step), steps tagged for an epoch start, an evaluation or a save also
    count.
    """
    return steady(m[primary_rank].steps)


def steady(steps: Sequence[Step]) -> tuple[Step, ...]:
    """Return the steady steps of any one process."""
    ordinary_steps = ordinary(steps)
    return tuple(ordinary_steps[_warm_up(ordinary_steps) :])


def ordinary(steps: Sequence[Step]) -> list[Step]:
    """Return the steady steps with warm-up included."""
    if not steps:
        raise Missing(
            "No training step was seen",
            "Let the run reach an optimizer step. In a loop without a torch optimizer, call profiler.step() once per "
            "step.",
        )
    candidates = [step for step in steps if not step.tags]
    if sum(step.count for step in candidates) < FEW:
        between_tags = schema.TAG_EPOCH_START | schema.TAG_EVALUATION | schema.TAG_CHECKPOINT
        candidates = [step for step in steps if not step.tags & ~between_tags]
    # If all steps are the first, compiled or profiled, use them except the first: it has no start to measure from.
    if not candidates:
        candidates = [step for step in steps if not step.tags & (schema.TAG_FIRST | schema.TAG_UNREACHED)]
    if not candidates and any(step.tags & schema.TAG_UNREACHED for step in steps):
        raise Missing(
            "The program ended before its GPU reached the end of a step",
            "Record more steps, or read the loss at the end of the program: that waits for the GPU.",
        )
    if not candidates:
        raise Missing("The run ended in its first step", "Record more steps: about 100 give reliable statistics.")
    return candidates


def _warm_up(steps: Sequence[Step]) -> int:
    """Return the number of rows to drop as warm-up."""
    durations = [step.duration for step in steps]
    settled = 0
    while settled + 2 * WINDOW <= len(steps):
        before = median(durations[settled : settled + WINDOW])
        after = median(durations[settled + WINDOW : settled + 2 * WINDOW])
        if abs(after - before) < SETTLED * before:
            break
        settled += 1
    number = sum(step.count for step in steps)
    limit = min(max(WARM_UP, sum(step.count for step in steps[:settled])), LARGEST_WARM_UP * number)
    rows, dropped = 0, 0
    while rows < len(steps) - 1 and dropped + steps[rows].count <= limit:
        dropped += steps[rows].count
        rows += 1
    return rows


@metric(None)
def steady_window(m: Metrics) -> tuple[float, float]:
    """Start of the first steady step and end of the last one, in seconds on the run's clock."""
    steps = m[steady_steps]
    last = steps[-1]
    return steps[0].start, last.start + length(last)


def in_steady_steps(m: Metrics, samples: Sequence[Sampled]) -> list[Sampled]:
    """Return the samples of the steady part of the run; all samples if that has none."""
    start, end = m[steady_window]
    return [sample for sample in samples if start <= sample.time <= end] or list(samples)


@metric("count", "steady steps")
def steady_step_count(m: Metrics) -> int:
    """Number of steady steps; all means here are over these steps."""
    return sum(step.count for step in m[steady_steps])


@dataclass(frozen=True, slots=True)
class Recording:
    """All steps of the primary rank, and how many of them are not steady."""

    steps: int
    seconds: float
    """Seconds from the start of the first step to the end of the last, evaluations included."""
    ordinary: int
    """Steps without evaluation, saving or an epoch start; warm-up included."""
    warm_up: int

    def needed(self, steady: float) -> int:
        """Return how many steps to record to get `steady` steady ones.

        The first step never counts. Evaluations and saves are assumed to stay as frequent as they were.
        """
        share = self.ordinary / max(1, self.steps - 1)
        return 1 + math.ceil((steady + max(WARM_UP, self.warm_up)) / min(1.0, share))


@metric(None)
def recording(m: Metrics) -> Recording:
    """All recorded steps, used to plan a longer recording."""
    steps = m[primary_rank].steps
    ordinary_count = sum(step.count for step in ordinary(steps))
    last = steps[-1]
    seconds = last.start + length(last) - steps[0].start
    return Recording(sum(step.count for step in steps), seconds, ordinary_count, ordinary_count - m[steady_step_count])


@metric("s", "mean step time")
def step_time_mean(m: Metrics) -> float:
    """Mean seconds per steady step, without evaluation, saving and epoch starts.

    The cost of a run is proportional to the mean, not the median.
    """
    return _total(m, "duration") / m[steady_step_count]


@metric("s", "median step time")
def step_time_p50(m: Metrics) -> float:
    """Median seconds per step."""
    return _quantile(m, 0.5)


@metric("s", "90th percentile of the step time")
def step_time_p90(m: Metrics) -> float:
    """Step time that 90 % of the steps do not exceed, in seconds."""
    return _quantile(m, 0.9)


@metric("s", "99th percentile of the step time")
def step_time_p99(m: Metrics) -> float:
    """Step time that 99 % of the steps do not exceed, in seconds."""
    return _quantile(m, 0.99)


@metric("1", "relative spread of the step time")
def step_time_cv(m: Metrics) -> float:
    """Standard deviation of the step time divided by its mean. For merged steps it is a lower bound."""
    steps = m[steady_steps]
    mean = m[step_time_mean]
    number = sum(step.count for step in steps)
    if number < 2:
        raise Missing("A single steady step has no spread", "Record more steps.")
    squares = sum(step.count * (step.duration - mean) ** 2 for step in steps)
    return math.sqrt(squares / (number - 1)) / mean


@metric(None)
def step_time_ci(m: Metrics) -> tuple[float, float]:
    """95 % confidence interval of the mean step time in seconds, by moving-block bootstrap (Kuensch 1989).

    Neighboring steps are correlated, so the bootstrap draws blocks of max(5, n^(1/3), batches in flight) steps.
    """
    low, high = mean_interval(m, m[steady_steps], [step.duration for step in m[steady_steps]])
    # Blocks reach the first and last steps less often than the others, which can push the interval off the mean.
    return min(low, m[step_time_mean]), max(high, m[step_time_mean])


@metric("1", "uncertainty of the mean step time")
def step_time_uncertainty(m: Metrics) -> float:
    """Half the width of the mean step time's 95 % interval, divided by the mean.

    For a trace with fewer than five steady steps, it is the larger of two values: the variation of the step time if
    kernels and gaps were random, and half the range of its steps.
    """
    if m.get(is_trace) and len(times := [step.duration for step in m[primary_rank].steps]) < 2 * FEWEST:
        scatter = max(window.scatter or 0.0 for window in gpu_windows(m))
        return max(scatter, (max(times) - min(times)) / (2 * mean(times)) if times else 0.0)
    low, high = m[step_time_ci]
    return (high - low) / 2 / m[step_time_mean]


@metric("1", "uncertainty of the typical step time")
def typical_step_uncertainty(m: Metrics) -> float:
    """Half the width of the 95 % interval of the 10 % trimmed mean, divided by that mean.

    The trimmed mean leaves out the shortest and the longest tenth of the steps, so single stalls of the machine do not
    change it. The interval comes from winsorized times: their spread divided by 1 - 2 x 10 % is the spread of the
    trimmed mean (Tukey and McLaughlin 1963).
    """
    mean, half = typical_step(m)
    return half / mean


def typical_step(m: Metrics) -> tuple[float, float]:
    """Return the 10 % trimmed mean of the step time and half the width of its 95 % interval, in seconds."""
    steps = m[steady_steps]
    weighted = measured(steps, "duration")
    lower, upper = (quantile(weighted, q) for q in (TRIMMED, 1 - TRIMMED))
    trimmed = [(duration, count) for duration, count in weighted if lower <= duration <= upper]
    low, high = mean_interval(m, steps, [min(max(step.duration, lower), upper) for step in steps])
    return weighted_mean(trimmed), (high - low) / 2 / (1 - 2 * TRIMMED)


def block_length(m: Metrics, steps: Sequence[Step]) -> int:
    """Return the number of rows per block for the bootstrap.

    A block spans at least the batches in flight; if there are few rows, it is a quarter of them.
    """
    in_flight = max((fact.num_workers * (fact.prefetch_factor or 2) for fact in m[primary_rank].loaders), default=0)
    block = significance.block_length(len(steps), in_flight)
    return block if len(steps) >= 2 * block else len(steps) // 4


def mean_interval(m: Metrics, steps: Sequence[Step], values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % interval of the mean of these values, one per step."""
    if len(steps) < FEWEST:
        raise Missing(f"Fewer than {FEWEST} steady steps", "Record more steps: about 100 give a narrow interval.")
    return significance.mean_interval(values, block_length(m, steps), [step.count for step in steps])


@metric("count", "backward passes per step")
def micro_steps_per_step(m: Metrics) -> float:
    """Backward passes per optimizer update. Above 1, gradients are accumulated."""
    return _total(m, "micro_steps") / m[steady_step_count]


@metric("count", "batches per step")
def batches_per_step(m: Metrics) -> float:
    """Training batches fetched per optimizer update."""
    return _total(m, "batches") / m[steady_step_count]


@metric("count", "model calls per step")
def forwards_per_step(m: Metrics) -> float:
    """Model calls per optimizer update, without evaluation."""
    return _total(m, "forwards") / m[steady_step_count]


@metric("1", "share of the step waiting for data")
def data_wait_fraction(m: Metrics) -> float:
    """Share of the step in `next(loader)` while no batch was ready: the time lost to data loading."""
    return _fraction(m, "data_wait")


@metric("1", "share of the step fetching ready batches")
def loader_overhead_fraction(m: Metrics) -> float:
    """Share of the step in `next(loader)` while a batch was ready: dequeuing, unpickling and, if pinned, the transfer
    between threads.
    """
    return _fraction(m, "loader_overhead")


@metric("1", "share of the step that the host spends fetching")
def data_wait_host_fraction(m: Metrics) -> float:
    """Share of the step that the host spends in `next(loader)`. This is not a stall while the GPU has queued work."""
    return _total(m, "fetch_host") / _total(m, "duration")


@metric("1", "share of the step copying to the GPU")
def h2d_fraction(m: Metrics) -> float:
    """Share of the step in exposed host-to-device copies.

    It comes from the profiler windows if the steps do not report it.
    """
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
    """Share of the step in exposed collectives.

    It comes from the profiler windows if the steps do not report it.
    """
    return _fraction_or_of_windows(m, "communication", "communication_exposed")


@metric("1", "share of the step in synchronization")
def sync_fraction(m: Metrics) -> float:
    """Share of the step in which the GPU is idle because the host waited for it.

    Examples are `.item()`, `.cpu()` and prints of tensors. The share comes from the profiler windows if the steps do
    not report it.
    """
    return _fraction_or_of_windows(m, "sync", "idle_sync")


@metric(None)
def sync_causes(m: Metrics) -> dict[str, float]:
    """Share of the step in which the GPU is idle because the host waited for it, by cause.

    The causes are item, branch, grad_scaler, shape, copy_in, copy_out, collective, synchronize and other; see the table
    `syncs`.
    """
    sums: dict[str, float] = {}
    for row in m[primary_rank].syncs:
        sums[row.cause] = sums.get(row.cause, 0.0) + row.idle
    total = math.fsum(sums.values())
    if total <= 0:
        raise Missing("The recording does not show why the host waited for the GPU", _ON_GPU, gpu_need(m))
    share = m[sync_fraction]
    return {cause: share * seconds / total for cause, seconds in sums.items()}


@metric("1", "share of the step in which a copy to the GPU blocks")
def blocking_copy_fraction(m: Metrics) -> float:
    """Share of the step in which the GPU is idle because the host waited for a copy to the GPU."""
    return m[sync_causes].get("copy_in", 0.0)


@metric("1", "share of the step in which the host waits for a value")
def value_sync_fraction(m: Metrics) -> float:
    """Share of the step in which the GPU is idle because the host waited for a value or for all GPU work.

    If the causes are known, copies to the GPU and collectives on the host are excluded.
    """
    causes: dict[str, float] | None = m.get(sync_causes)
    if causes is None:
        return m[sync_fraction]
    return math.fsum(part for cause, part in causes.items() if cause not in ("copy_in", "collective"))


@metric("1", "share of the step in garbage collection")
def gc_fraction(m: Metrics) -> float:
    """Share of the step in Python's garbage collector."""
    return _fraction(m, "gc")


@metric("1", "share of the step in everything else")
def other_fraction(m: Metrics) -> float:
    """Share of the step in the remainder: loss, logging, metrics, callbacks, the loop itself."""
    return _fraction(m, "other")


@metric(None)
def phase_seconds(m: Metrics) -> dict[str, float]:
    """Seconds of each measured phase in the mean steady step; they sum to `step_time_mean`.

    If a phase was measured in only some steps, it counts as zero in the others; their other phases contain its time.
    """
    _timed(m)
    return mean_phases(m[steady_steps])


@metric(None)
def modeled_phases(m: Metrics) -> dict[str, float]:
    """Seconds of each phase as used by gain models: `phase_seconds`, except for traces without backward passes.

    Such a trace shows inference or has no operators; then everything else counts as computation. A trace without step
    marks counts as one step.
    """
    if not m.get(is_trace):
        return m[phase_seconds]
    seconds = m.get(phase_seconds) or {"other": sum(window.duration for window in gpu_windows(m))}
    if "backward" in seconds:
        return seconds
    return {"forward" if phase == "other" else phase: part for phase, part in seconds.items()}


def mean_phases(steps: Sequence[Step]) -> dict[str, float]:
    """Return the mean seconds of each phase that any of the steps measured."""
    count = sum(step.count for step in steps)
    measured_steps = _with_phases(steps)
    duration = summed(measured_steps, "duration") or 0.0
    # Steps without measured phases are assumed to be like the others.
    scale = (summed(steps, "duration") or 0.0) / duration / count if duration else 0.0
    sums = {phase: summed(measured_steps, phase) for phase in PHASES}
    return {phase: total * scale for phase, total in sums.items() if total is not None}


def _with_phases(steps: Sequence[Step]) -> Sequence[Step]:
    """Return the steps with a measured phase; on a GPU the marks of a step may be missing."""
    return [step for step in steps if any(getattr(step, phase) is not None for phase in PHASES)]


def summed(steps: Sequence[Step], name: str) -> float | None:
    """Return the sum of a column over all steps of all rows; None if no row has it."""
    values = measured(steps, name)
    return math.fsum(value * count for value, count in values) if values else None


def _timed(m: Metrics) -> None:
    """Raise Missing if phases are host times of work that a device does later."""
    if kind := untimed(m[primary_rank]):
        raise Missing(
            UNTIMED.format(kind),
            "Not supported yet: only whole-step time, host memory and data loading are measured.",
            Need.GPU,
        )


def _total(m: Metrics, name: str) -> float:
    """Return the sum of a column over the steady steps."""
    total = summed(m[steady_steps], name)
    if total is None:
        subject, remedy = _COLUMNS[name]
        need = gpu_need(m) if name in ("h2d", "sync", "communication") else Need.RUN
        alone = name == "communication" and m.get(world_size) == 1
        raise Missing(f"{subject} was not measured", remedy, Need.RANKS if alone else need)
    return total


def _fraction(m: Metrics, phase: str) -> float:
    if _total(m, "duration") <= 0:
        raise Missing("The steps took no time", "Record the run again; if this happens again, report it as a bug.")
    if phase not in ("data_wait", "loader_overhead"):  # host times on every device
        _timed(m)
    seconds = _total(m, phase)
    return seconds / (summed(_with_phases(m[steady_steps]), "duration") or seconds)


def _fraction_or_of_windows(m: Metrics, phase: str, column: str) -> float:
    """Return the phase's share of the step, or its share of the windows if steps do not report it.

    If steps do not report this time, it is part of other phases.
    """
    try:
        return _fraction(m, phase)
    except Missing:
        windows = [window for window in gpu_windows(m) if getattr(window, column) is not None]
        if not windows:
            raise
        return min(1.0, float(sum(getattr(window, column) for window in windows)) / unprofiled(m, windows))


def gpu_windows(m: Metrics) -> list[Window]:
    """Return the windows that timed a GPU.

    Windows without shapes are preferred, because recording shapes slows the host and makes the GPU wait for launches.
    The list is empty if kernel times cannot be trusted.
    """
    if _graph_times_wrong(m):
        return []
    windows = [window for window in m[primary_rank].windows if window.device == "cuda" and window.steps]
    return [window for window in windows if not window.shapes] or windows


def require_kernel_times(m: Metrics) -> None:
    """Raise Missing if kernel times cannot be trusted."""
    if _graph_times_wrong(m):
        raise Missing(
            "CUPTI misreports the times of kernels in CUDA graphs before CUDA 13.1",
            "Record with CUDA 13.1 or newer, or without CUDA graphs.",
        )


def _graph_times_wrong(m: Metrics) -> bool:
    state = m[primary_rank].window_state
    return state is not None and state.graph_times_wrong


def unprofiled(m: Metrics, windows: Sequence[Window]) -> float:
    """Return the seconds that the windows' steps take without profiling, which slows the host.

    An imported trace has no other steps; its time is used unchanged, because the cost of profiling is unknown.
    """
    if any(not window.cost for window in windows):
        return sum(window.duration for window in windows)
    return sum(window.steps for window in windows) * m[step_time_mean]


def length(step: Step) -> float:
    """Return the seconds of all steps of a row, including the time between each step and the one before."""
    return step.count * (step.duration + time_between(step))


def time_between(step: Step) -> float:
    """Return the seconds between a step and the one before."""
    return sum(getattr(step, name) or 0.0 for name in BETWEEN)


def _quantile(m: Metrics, q: float) -> float:
    sketches = [sketch for sketch in m[primary_rank].sketches if sketch.quantity == "duration"]
    return quantile_of_run(measured(m[steady_steps], "duration"), sketches, q)
