"""A debugging mode is on.

Anomaly detection keeps a stack trace for every operation and checks every gradient for NaN. CUDA_LAUNCH_BLOCKING waits
for every kernel. TORCH_DISTRIBUTED_DEBUG=DETAIL checks every collective. A profiler that is always on records
everything. Each of them slows down every step, so the measurements do not represent the program.

Wrong when: you are using that mode to debug.

Source: PyTorch Performance Tuning Guide, https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html
"""

from dataclasses import dataclass, replace

from advisor.metrics import Metrics, lines, settings
from advisor.models.effects import COMPUTE, LAUNCHED, Triple, divide, in_turn, relieve_host, shares_of
from advisor.rules._spelling import spelling
from advisor.rules.base import Advice, Area, Change, Confidence, Evidence, Intervention, Measurement, Rule, Safety, bash

RULE = Rule("Turn off debugging modes", Area.VALIDITY, Confidence.EMPIRICAL, certain=True)


@dataclass(frozen=True, slots=True)
class _Mode:
    name: str
    phases: tuple[str, ...]
    speedup: Triple
    """The times of those phases are divided by this (low, expected, high gain)."""
    variable: str | None = None
    """The environment variable that turns it on."""


MODES = {
    # Measured on a CPU with 24 small layers: whole steps 2 to 3.4 times as fast, so their passes 2.3 to 5 times. Large
    # layers hide it, because a stack trace takes the same time for any operation.
    "anomaly": _Mode("anomaly detection", COMPUTE, (1.2, 2.8, 5.0)),
    # Assumption: it depends on the kernels' length; no gain at worst.
    "launch_blocking": _Mode("CUDA_LAUNCH_BLOCKING", LAUNCHED, (1.0, 1.2, 2.0), "CUDA_LAUNCH_BLOCKING"),
    # Assumption.
    "distributed_debug": _Mode(
        "TORCH_DISTRIBUTED_DEBUG=DETAIL", ("communication",), (1.0, 1.1, 1.5), "TORCH_DISTRIBUTED_DEBUG"
    ),
    # A schedule of a few steps costs almost nothing and cannot be distinguished from others: no gain is predicted.
    "program_profiler": _Mode("the program's own torch.profiler", (), (1.0, 1.0, 1.0)),
    # An event costs 1.2 us on the host. Measured on a CPU with 16 small layers, shapes and stacks: loops are about
    # twice as fast without the profiler, and 2.5 to 3.2 times with very many events. Large layers hide it.
    "profiled_throughout": _Mode(
        "the program's own torch.profiler, which records every step", LAUNCHED, (1.0, 1.5, 3.0)
    ),
}


def when(m: Metrics) -> Evidence | None:
    """If anomaly detection, CUDA_LAUNCH_BLOCKING, TORCH_DISTRIBUTED_DEBUG=DETAIL or the program's profiler is on,"""
    modes = m[settings.debug_modes]
    if not modes:
        return None
    return Evidence(
        (Measurement(settings.debug_modes, len(modes), 0, ">"),), ", ".join(MODES[mode].name for mode in modes)
    )


def then(m: Metrics, found: Evidence) -> Advice:
    """then turn it off."""
    modes = m[settings.debug_modes]
    slow_modes = [MODES[mode] for mode in modes if MODES[mode].phases]
    effect = in_turn(
        # These modes slow the host that enqueues the step, so the time that the GPU waits for it falls by the same
        # factor.
        *(relieve_host(shares_of(mode.speedup)) for mode in slow_modes),
        *(divide(*mode.phases, by=mode.speedup) for mode in slow_modes),
    )
    return Advice(
        then=f"Turn off {found.note}, unless you are using it to find a bug; then record again.",
        changes=tuple(change for mode in modes for change in _changes(m, mode)),
        basis="Anomaly detection: forward and backward become 1.2, 2.8 or 5 times as fast (measured for a whole "
        "step: 2 to 3.4). A profiler that records every step: all three phases become 1, 1.5 or 3 times as fast "
        "(measured: about 2); one that may record only a few steps: no gain. The other modes: assumptions.",
        effect=effect if slow_modes else None,
        intervention=_intervention(slow_modes),
        risk="No effect on results. Without anomaly detection, the origin of a NaN is not reported.",
    )


def _changes(m: Metrics, mode: str) -> tuple[Change, ...]:
    """Return the changes that turn a mode off, at the line that turns it on if sampled code shows that."""
    if variable := MODES[mode].variable:
        return (bash(f"unset {variable}\n"),)
    if mode != "anomaly":
        return spelling(m).less_profiling()
    changes, place = spelling(m).no_anomaly_detection(), m.get(lines.anomaly_place)
    if place is None:
        return changes
    return tuple(change if change.line else replace(change, file=place[0], line=place[1]) for change in changes)


def _intervention(slow: list[_Mode]) -> Intervention | None:
    """Return the intervention that turns the modes off.

    None if several modes of different kinds slow the step, because a trial makes one change at a time.
    """
    if slow == [MODES["anomaly"]]:
        return Intervention(name="flags", settings={"anomaly": False}, safety=Safety.EXACT)
    if slow and all(mode.variable for mode in slow):
        variables = {mode.variable: None for mode in slow}
        return Intervention(name="environment", settings={"variables": variables}, safety=Safety.EXACT)
    return None
