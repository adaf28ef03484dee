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
        sentence = (
            f"This trace has {count(kernels, 'kernel')}; it needs {digits(m[MIN_KERNELS])}. Trace a few whole steps "
            "after warm-up, for example with torch.profiler.schedule(wait=10, warmup=2, active=3)."
        )
    else:
        sentence = f"{_found(m)} {_next(m)}"
    return Advice(
        then=sentence,
        changes=(),
        basis="The interval gets narrower with the square root of the number of steps.",
        memory=0,
        risk="None.",
    )


def _found(m: Metrics) -> str:
    steady_steps, uncertainty = m[step.steady_step_count], m.get(step.typical_step_uncertainty)
    if steady_steps < m[MIN_STEPS] or uncertainty is None:
        recording = m.get(step.recording)
        recorded_note = f" of {recording.steps} recorded" if recording else ""
        return f"This run has {count(steady_steps, 'steady step')}{recorded_note}; it needs {digits(m[MIN_STEPS])}."
    return f"The {steady_steps} steady steps vary so much that their typical time is uncertain by {share(uncertainty)}."


def _next(m: Metrics) -> str:
    """Return what to do; advise more steps only if they settle it in reasonable time."""
    steady_steps, uncertainty = m[step.steady_step_count], m.get(step.typical_step_uncertainty) or 0.0
    recording, cores = m.get(step.recording), m.get(host.core_use)
    # Enough steady steps and a narrow enough interval, in two digits because the estimate is not more precise.
    steady_needed = max(m[MIN_STEPS], steady_steps * (uncertainty / m[MAX_UNCERTAINTY]) ** 2)
    total_steps = recording.needed(steady_needed) if recording else 1 + step.WARM_UP + math.ceil(steady_needed)
    unit: int = 10 ** max(0, len(str(total_steps)) - 2)
    rounded_steps = math.ceil(total_steps / unit) * unit
    step_time = recording.seconds / recording.steps if recording else m.get(step.step_time_mean)
    if cores and cores.is_crowded:
        return f"Record again on an idle machine: other programs used {digits(cores.others)} of {cores.cores} cores."
    if step_time is not None and rounded_steps * step_time > m[MAX_RECORDING]:
        budget = f"{round(m[MAX_RECORDING] / step_time):,} steps within {seconds(m[MAX_RECORDING])}"
        return f"{budget} would not be enough: compare whole epochs, or record on an idle machine."
    duration = f" ({seconds(rounded_steps * step_time)})" if step_time is not None else ""
    return f"Record at least {rounded_steps:,} steps{duration}, including warm-up and evaluations."
