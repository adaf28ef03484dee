"""The operator table of a report: each operator of one window, its time, and how close it comes to the GPU's peaks."""

from dataclasses import dataclass

from advisor.models.gpus import Peaks
from advisor.models.roofline import Roofline, roofline
from advisor.runs.profile import Profile
from profiler.schema import REST, Operator

OFF_CHIP = ("HtoD", "DtoH", "PtoP", "Host")
"""Parts of the names of copies that are not limited by the GPU's memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorRow:
    """An operator with inputs of one shape at one place, per step."""

    name: str
    path: tuple[str, ...]
    phase: str | None
    kind: str
    inputs: tuple[tuple[int, ...], ...]
    dtype: str | None
    arithmetic: str | None
    """Dtype whose peak rate applies."""
    calls: float
    seconds: float
    share: float
    """Share of the time of all GPU work."""
    kernels: float | None
    kernel: str
    host: float | None
    gap: float | None
    flop: float | None
    bytes: float | None
    roof: Roofline


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorTable:
    """The operators of one window of one rank, most time first."""

    steps: float
    marked: bool
    """Whether steps are known; else the whole trace counts as one."""
    seconds: float
    """Seconds per step of all GPU work."""
    elapsed: float
    """Seconds of a step."""
    rows: tuple[OperatorRow, ...]
    rest: OperatorRow | None
    """The operators without their own row."""
    gpu: str
    peaks: Peaks | None
    """None if the GPU is not in the table of peaks."""

    @property
    def modeled(self) -> float:
        """Return the share of the time in operators whose share of the roofline is known."""
        return sum(row.share for row in self.rows if row.roof.share is not None)

    @property
    def gains(self) -> tuple[OperatorRow, ...]:
        """Return the rows with a gain, the largest first."""
        return tuple(sorted((row for row in self.rows if row.roof.gain), key=lambda row: -(row.roof.gain or 0.0)))


def operator_table(profile: Profile, peaks: Peaks | None) -> OperatorTable | None:
    """Return the table of the first rank's longest window that has one; None without any on a GPU."""
    rank = profile.ranks[0] if profile.ranks else None
    gpu_operators = [record for record in rank.operators if record.device == "cuda"] if rank else []
    if rank is None or not gpu_operators:
        return None
    facts = {fact.id: fact for fact in rank.traces if any(operator.window == fact.id for operator in gpu_operators)}
    if not facts:
        return None
    window, fact = max(facts.items(), key=lambda item: (item[1].steps or 0, item[0]))
    operators = [operator for operator in gpu_operators if operator.window == window]
    whole = sum(operator.total for operator in operators)
    if whole <= 0:
        return None
    steps = float(fact.steps or 1)
    gpu = rank.devices[0].name if rank.devices else ""
    rows = [
        _row(operator, steps, whole, peaks, "amd" in gpu.lower() or rank.process.hip is not None)
        for operator in operators
    ]
    return OperatorTable(
        steps=steps,
        marked=fact.steps is not None,
        seconds=whole / steps,
        elapsed=fact.seconds / steps,
        rows=tuple(row for row in rows if row.name != REST),
        rest=next((row for row in rows if row.name == REST), None),
        gpu=gpu,
        peaks=peaks,
    )


def _row(each: Operator, steps: float, whole: float, peaks: Peaks | None, amd: bool) -> OperatorRow:
    def per_step(value: float | None) -> float | None:
        return None if value is None else value / steps

    kernels = float(each.kernels or each.calls) / steps
    seconds = each.total / steps
    off_chip = "Memcpy" in each.kernel and any(part in each.kernel for part in OFF_CHIP)
    return OperatorRow(
        name=each.name,
        path=each.path,
        phase=each.phase,
        kind=each.kind,
        inputs=each.inputs,
        dtype=each.dtype,
        arithmetic=each.arithmetic,
        calls=each.calls / steps,
        seconds=seconds,
        share=each.total / whole,
        kernels=None if each.kernels is None else kernels,
        kernel=each.kernel,
        host=per_step(each.host),
        gap=per_step(each.gap),
        flop=per_step(each.flop),
        bytes=per_step(each.bytes),
        roof=roofline(
            kind=each.kind,
            arithmetic=each.arithmetic,
            seconds=seconds,
            kernels=kernels,
            flop=per_step(each.flop),
            moved=per_step(each.bytes),
            peaks=None if off_chip else peaks,
            amd=amd,
        ),
    )
