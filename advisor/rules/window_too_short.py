"""The recording has too few steps for reliable timings.

Step times vary, and the mean of a few steps may be wrong by more than any advice would gain. Until the confidence
interval of the typical step time is narrow enough, everything else in the report is only informational. Single stalls
do not count: one long stall in a hundred steps does not make the others less certain.

Wrong when: the run is meant to be that short, or its steps have different amounts of work (sequences of all lengths).
In that case, compare whole epochs, not steps.

Source: Kuensch: The Jackknife and the Bootstrap for General Stationary Observations, 1989
"""

import math

from advisor.metrics import Metrics, Threshold, gpu, host, step
from advisor.metrics.step import MIN_STEPS
from advisor.rules.base import Advice, Area, Confidence, Evidence, Rule, Severity, evidence, measure
from advisor.units import count, digits, seconds, share

RULE = Rule("Record again for reliable timings", Area.VALIDITY, Confidence.HEURISTIC, cap=Severity.INFO)

MAX_UNCERTAINTY = Threshold(
    0.05, "Half the width of the trimmed mean's 95 % interval; above this, a gain of 5 % is within the noise."
)
MAX_RECORDING = Threshold(
    600.0, "Seconds: if more than ten minutes of recording would be needed, use a quieter machine instead."
)


MIN_KERNELS = Threshold(
    30, "For traces, the limit counts kernels, not steps, because a trace shows each kernel and each gap of a step."
)


def when(m: Metrics) -> Evidence | None:
    """If there are fewer than 30 steady steps, or their trimmed mean is uncertain by more than 5 % (in a trace: if
    there are fewer than 30 kernels),
    """
    if m.get(gpu.traced_kernels) is not None:
        return evidence(measure(m, gpu.traced_kernels, "<", MIN_KERNELS))
    return evidence(measure(m, step.steady_step_count, "<", MIN_STEPS)) or evidence(
        measure(m, step.typical_step_uncertainty, ">", MAX_UNCERTAINTY)
    )


def then(m: Metrics, found: Evidence) -> Advice:
    """then record enough steps to reduce the uncertainty to 5 %; if that takes too long, use an idle machine."""
    if (kernels := m.get(gpu.traced_kernels)) is not None:
        words = (
            f"This trace has {count(kernels, 'kernel')}; it needs {digits(m[MIN_KERNELS])}. Trace a few whole steps "
            "after warm-up, for example with torch.profiler.schedule(wait=10, warmup=2, active=3)."
        )
    else:
        words = f"{_found(m)} {_next(m)}"
    return Advice(
        then=words,
        changes=(),
        basis="The interval gets narrower with the square root of the number of steps.",
        memory=0,
        risk="None.",
    )


def _found(m: Metrics) -> str:
    steady, uncertainty = m[step.steady_step_count], m.get(step.typical_step_uncertainty)
    if steady < m[MIN_STEPS] or uncertainty is None:
        recorded = m.get(step.recording)
        of = f" of {recorded.steps} recorded" if recorded else ""
        return f"This run has {count(steady, 'steady step')}{of}; it needs {digits(m[MIN_STEPS])}."
    return f"The {steady} steady steps vary so much that their typical time is uncertain by {share(uncertainty)}."


def _next(m: Metrics) -> str:
    """Return what to do; advise more steps only if they settle it in reasonable time."""
    steady, uncertainty = m[step.steady_step_count], m.get(step.typical_step_uncertainty) or 0.0
    recorded, cores = m.get(step.recording), m.get(host.core_use)
    # Enough steady steps and a narrow enough interval, in two digits because the estimate is not more precise.
    wanted = max(m[MIN_STEPS], steady * (uncertainty / m[MAX_UNCERTAINTY]) ** 2)
    number = recorded.needed(wanted) if recorded else 1 + step.WARM_UP + math.ceil(wanted)
    unit: int = 10 ** max(0, len(str(number)) - 2)
    needed = math.ceil(number / unit) * unit
    step_time = recorded.seconds / recorded.steps if recorded else m.get(step.step_time_mean)
    if cores and cores.is_crowded:
        return f"Record again on an idle machine: other programs used {digits(cores.others)} of {cores.cores} cores."
    if step_time is not None and needed * step_time > m[MAX_RECORDING]:
        within = f"{round(m[MAX_RECORDING] / step_time):,} steps within {seconds(m[MAX_RECORDING])}"
        return f"{within} would not be enough: compare whole epochs, or record on an idle machine."
    lasts = f" ({seconds(needed * step_time)})" if step_time is not None else ""
    return f"Record at least {needed:,} steps{lasts}, including warm-up and evaluations."
