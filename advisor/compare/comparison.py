"""The comparison of two runs: everything that is shown about it, and its serialization."""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from advisor.compare.change import RELEVANT, ChangeVerdict, difference, for_few, ratio, unbounded, verdict
from advisor.compare.lines import FunctionChange, function_changes
from advisor.compare.operators import OperatorChanges, operator_changes
from advisor.compare.settings import Difference, differences
from advisor.metrics import hardware, host, memory, step
from advisor.metrics.base import Metric, Metrics, Missing, if_measured, known
from advisor.metrics.input import loader
from advisor.metrics.settings import data_parallel_size, primary_rank, world_size
from advisor.stats.significance import Interval
from profiler.schema import BETWEEN, PHASES, TAG_FIRST, Outcome, Step

SCHEMA = "profile-train/comparison@1"

LEAST_STEPS = round(step.MIN_STEPS.value)

CROWDED = 0.1
"""Share of a full machine's cores from which use by other programs counts as a cause (assumption)."""

SAMPLES_DIFFER = 0.01
"""Smallest relative difference in samples per step, beyond partial batches at the ends of epochs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the two runs, or of two sets of traces."""

    folder: str
    command: tuple[str, ...]
    """Empty for traces."""
    ended: Outcome
    steps: int
    """Steady steps of the primary rank: the basis of its means."""
    samples: float | None
    """Samples per step, over all ranks; None if not known."""
    ranks: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedQuantity:
    """One quantity in both runs; None is "not measured"."""

    name: str
    label: str
    """Name for readers, in lower case."""
    unit: str
    before: float | None
    after: float | None
    change: Interval | None = None
    """Change relative to the first run's value; None if it is not judged.

    For parts of a step, it is relative to the first run's mean step.
    """
    verdict: ChangeVerdict | None = None
    """The verdict; None if the row is only shown."""

    @property
    def is_measured(self) -> bool:
        """Return whether it is measured in at least one of the runs, and not zero in both."""
        return bool(self.before or self.after) or (self.before is None) != (self.after is None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The second run (`after`) next to the first (`before`)."""

    before: Side
    after: Side
    relevant: float
    """The smallest difference that matters, as a share."""
    verdict: ChangeVerdict
    """Verdict on the step time, including time between steps."""
    crowded: str
    """The runs, "A", "B" or "AB", that other programs may have slowed down; empty if there is none.

    Their intervals include the time that this may have cost.
    """
    scale: float
    """Factor on the second run's times that equalizes the number of samples; usually 1."""
    steps: tuple[ComparedQuantity, ...]
    """The mean, the typical step and percentiles."""
    phases: tuple[ComparedQuantity, ...]
    between: tuple[ComparedQuantity, ...]
    """Seconds per step of each kind of work between steps."""
    memory: tuple[ComparedQuantity, ...]
    machine: tuple[ComparedQuantity, ...]
    """Activity of GPUs and cores; not judged."""
    operators: OperatorChanges | None
    """The GPU's work by operator; None unless both runs have a profiler window of it, or are traces."""
    functions: tuple[FunctionChange, ...]
    """Functions of the program's code, largest difference first; empty unless both runs have stacks."""
    settings: tuple[Difference, ...]
    environment: tuple[Difference, ...]

    @property
    def mean(self) -> ComparedQuantity:
        """Return the mean step in seconds."""
        return self.steps[0]

    @property
    def typical(self) -> ComparedQuantity:
        """Return the 10 % trimmed mean: single stalls do not affect it."""
        return self.steps[1]

    @property
    def whole(self) -> ComparedQuantity:
        """Return the mean step including time between steps; the mean step if there is none."""
        return next((row for row in self.steps if row.name == "whole_step_time"), self.mean)

    @property
    def hardware(self) -> tuple[Difference, ...]:
        """Return the differences in the environment that affect the step time."""
        return tuple(fact for fact in self.environment if fact.name in _HARDWARE)

    def result(self) -> dict[str, Any]:
        """Return the comparison for JSON; an unbounded interval has null bounds."""
        # Not msgspec: it rejects file names that are not UTF-8. Infinity and NaN become null.
        fields = json.loads(
            json.dumps(asdict(self), default=lambda member: member.value), parse_constant=lambda _: None
        )
        return {"schema": SCHEMA, **fields, "hardware": [f"{fact.group}: {fact.name}" for fact in self.hardware]}


def compare(
    before: Metrics, after: Metrics, names: tuple[str, str] = ("A", "B"), relevant: float = RELEVANT
) -> Comparison:
    """Compare two runs; `names` are their folders."""
    sides = (_side(before, names[0]), _side(after, names[1]))
    shares = (_least_share(before), _least_share(after))
    builder = _Both(before, after, _scale(*sides), relevant, min(side.steps for side in sides) < LEAST_STEPS, shares)
    between = tuple(builder.part(name, _between) for name in BETWEEN)
    mean = builder.step("step_time_mean", _mean, step.step_time_mean.label)
    typical = builder.step("typical_step_time", _typical, "typical step time")
    whole = builder.whole()
    steps = (
        mean,
        typical,
        *([whole] if whole else []),
        *(builder.shown(metric, times=True) for metric in (step.step_time_p50, step.step_time_p90, step.step_time_p99)),
    )
    settings, environment = differences(before.profile, after.profile)
    return Comparison(
        before=sides[0],
        after=sides[1],
        relevant=relevant,
        verdict=_overall((whole or mean, mean, typical), between),
        crowded="".join(name for name, share in zip("AB", shares, strict=True) if share < 1),
        scale=builder.scale,
        steps=steps,
        phases=tuple(builder.part(name, _phase) for name in PHASES),
        between=between,
        memory=tuple(builder.amount(metric) for metric in _MEMORY),
        machine=tuple(builder.shown(metric) for metric in _MACHINE),
        operators=operator_changes(before, after),
        functions=function_changes(before, after, builder.scale, relevant, shares),
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


def _overall(rows: Sequence[ComparedQuantity], between: Sequence[ComparedQuantity]) -> ChangeVerdict:
    """Return the verdict of the first row that is clear.

    The first row is the mean step including time between steps. If a few checkpoints make it unclear, the mean step
    counts; if stalls do, the typical step counts. If a kind of work between steps then contradicts that row, the
    verdict is unclear.
    """
    clear_verdict = next(
        (row.verdict for row in rows if row.verdict and row.verdict is not ChangeVerdict.UNCLEAR), ChangeVerdict.UNCLEAR
    )
    contradictions = {row.verdict for row in between} & {ChangeVerdict.BETTER, ChangeVerdict.WORSE} - {clear_verdict}
    if contradictions and rows[0].verdict is ChangeVerdict.UNCLEAR:
        return ChangeVerdict.UNCLEAR
    return clear_verdict


def _least_share(m: Metrics) -> float:
    """Return the least share of a measured time that remains on an idle machine; 1 if other programs use no cores.

    On a full machine, the program gets its share of the cores in use. Alone, it can gain at most the share of the
    others.
    """
    use = m.get(host.core_use)
    if use is None or not use.is_full or use.others < CROWDED * use.cores:
        return 1.0
    return use.program / (use.program + use.others)


def _without_others(measured: Interval, share: float) -> Interval:
    """Return the interval, extended down to the least time possible on an idle machine."""
    return measured if measured.low <= 0 else Interval(share * measured.low, measured.estimate, measured.high)


@dataclass(frozen=True, slots=True)
class _Both:
    """A builder of rows that have a value for each run."""

    before: Metrics
    after: Metrics
    scale: float
    relevant: float
    few: bool
    shares: tuple[float, float]
    """For each run, the least share of a measured time that remains on an idle machine."""

    def step(self, name: str, of: Callable[[Metrics], Interval], label: str) -> ComparedQuantity:
        """Return the row of a kind of mean step; its change is relative to the first run's value."""
        return self._relative(name, label, *self._sides(of))

    def part(self, name: str, of: Callable[[Metrics, str], Interval]) -> ComparedQuantity:
        """Return the row of a part of the step in seconds; its change is a share of the first run's mean step."""
        before, after = self._sides(of, name)
        whole = self.before.get(step.step_time_mean)
        change = difference(before, after, whole) if before and after and whole else None
        return self._row(name, name.replace("_", " "), before, after, change)

    def whole(self) -> ComparedQuantity | None:
        """Return the mean step including the time between steps that both runs measured; None if there is none."""
        sides = [self._sides(_mean)]
        for name in BETWEEN:
            before, after = self._sides(_between, name)
            if before and after and (before.estimate or after.estimate):
                sides.append((before, after))
        if len(sides) == 1 or None in sides[0]:
            return None
        return self._relative(
            "whole_step_time",
            "mean incl. evaluation and saving",
            _summed([before for before, _ in sides if before]),
            _summed([after for _, after in sides if after]),
        )

    def _sides(self, of: Callable[..., Interval], *name: str) -> tuple[Interval | None, Interval | None]:
        """Return both runs' intervals, including what other programs may have cost; the second is scaled by `scale`."""
        before, after = (
            _without_others(interval, share) if (interval := if_measured(of, m, *name)) else None
            for m, share in zip((self.before, self.after), self.shares, strict=True)
        )
        if after is not None:
            after = Interval(*(self.scale * value for value in (after.low, after.estimate, after.high)))
        return before, after

    def _relative(self, name: str, label: str, before: Interval | None, after: Interval | None) -> ComparedQuantity:
        positive = before and after and before.estimate > 0 and after.estimate > 0
        return self._row(name, label, before, after, ratio(before, after) if before and after and positive else None)

    def _row(
        self, name: str, label: str, before: Interval | None, after: Interval | None, change: Interval | None
    ) -> ComparedQuantity:
        change_verdict = verdict(change, self.relevant) if change else ChangeVerdict.NOT_MEASURED
        return ComparedQuantity(
            name=name,
            label=label,
            unit="s",
            before=before.estimate if before else None,
            after=after.estimate if after else None,
            change=change,
            verdict=ChangeVerdict.TOO_FEW if change and self.few else change_verdict,
        )

    def amount(self, one: Metric[int]) -> ComparedQuantity:
        """Return the row of an amount in bytes. A peak is one number, so only its size decides whether it matters."""
        row = self.shown(one)
        if row.before is None or row.after is None:
            return replace(row, verdict=ChangeVerdict.NOT_MEASURED)
        share = (row.after - row.before) / row.before if row.before else math.inf if row.after else 0.0
        change = Interval(share, share, share)
        return replace(row, change=change, verdict=verdict(change, self.relevant))

    def shown(self, one: Metric[float] | Metric[int], *, times: bool = False) -> ComparedQuantity:
        """Return the row of a metric that is only shown."""
        after = self.after.get(one)
        return ComparedQuantity(
            name=one.name,
            label=one.label,
            unit=one.unit or "",
            before=self.before.get(one),
            after=after if after is None or not times else self.scale * after,
        )


def _summed(intervals: Sequence[Interval]) -> Interval:
    """Return the interval of a sum of independent estimates: distances to the bounds add in quadrature."""
    estimate = math.fsum(interval.estimate for interval in intervals)
    below = math.hypot(*(interval.estimate - interval.low for interval in intervals))
    above = math.hypot(*(interval.high - interval.estimate for interval in intervals))
    return Interval(estimate - below, estimate, estimate + above)


def _mean(m: Metrics) -> Interval:
    value, bounds = m[step.step_time_mean], m.get(step.step_time_ci)
    return _widened(m, m[step.steady_steps], Interval(bounds[0], value, bounds[1])) if bounds else unbounded(value)


def _typical(m: Metrics) -> Interval:
    m[step.step_time_mean]  # raises Missing if there is no step
    try:
        value, half = step.typical_step(m)
    except Missing:
        return unbounded(m[step.step_time_p50])
    return _widened(m, m[step.steady_steps], Interval(value - half, value, value + half))


def _phase(m: Metrics, name: str) -> Interval:
    mean = known(m[step.phase_seconds].get(name), f"{name} was not measured", "")
    return _around(m, m[step.steady_steps], name, mean)


def _between(m: Metrics, name: str) -> Interval:
    """Return the seconds per step of one kind of work between steps, over all steps but the first.

    Work before the first step does not depend on the length of the run.
    """
    steps = [row for row in m[primary_rank].steps if not row.tags & TAG_FIRST]
    total = known(step.summed(steps, name), f"{name} was not measured", "")
    return _around(m, steps, name, total / sum(row.count for row in steps))


def _around(m: Metrics, steps: Sequence[Step], name: str, mean: float) -> Interval:
    try:
        low, high = step.mean_interval(m, steps, [getattr(row, name) or 0.0 for row in steps])
    except Missing:
        return unbounded(mean)
    return _widened(m, steps, Interval(min(low, mean), mean, max(high, mean)))


def _widened(m: Metrics, steps: Sequence[Step], interval: Interval) -> Interval:
    return for_few(interval, len(steps) / step.block_length(m, steps))


def _side(m: Metrics, folder: str) -> Side:
    run = m.profile.runs[0] if m.profile.runs else None
    batch, batches = m.get(loader), m.get(step.batches_per_step)
    ranks = m.get(data_parallel_size) or 1
    samples = batch.batch_size * batches * ranks if batch and batch.batch_size and batches else None
    return Side(
        folder=folder,
        command=run.command if run else (),
        ended=run.outcome if run else "attached",
        steps=m.get(step.steady_step_count) or 0,
        samples=samples,
        ranks=m.get(world_size),
    )


def _scale(before: Side, after: Side) -> float:
    if not before.samples or not after.samples:
        return 1.0
    ratio = before.samples / after.samples
    return ratio if abs(math.log(ratio)) > SAMPLES_DIFFER else 1.0
