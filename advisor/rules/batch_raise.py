"""The batch does not fill the GPU, and memory has room for a larger one.

Some costs of a step do not depend on the batch size: the update, kernel launches, collectives, idle
multiprocessors. A larger batch spreads them over more samples.

Wrong when: the batch is larger than the critical batch size, above which training needs more samples to reach the same
loss (McCandlish et al.); the schedule counts steps; or batch normalization depends on the batch size. Each step takes
longer; what gets shorter is the time per sample.

Source: McCandlish et al., An Empirical Model of Large-Batch Training, 2018, https://arxiv.org/abs/1812.06162
Source: NVIDIA DCGM user guide: profiling metrics, https://docs.nvidia.com/datacenter/dcgm/latest/user-guide/
"""

from dataclasses import replace

from advisor.metrics import Metrics, Threshold, goals, gpu, hardware, input, memory, settings, step
from advisor.models.memory import Slope, slope_of_one
from advisor.models.state import Effect, Scenario, State
from advisor.rules._spelling import spelling
from advisor.rules.base import Advice, Area, Confidence, Evidence, Measurement, Rule, Severity, measure

RULE = Rule("Raise the batch size", Area.MEMORY, Confidence.HEURISTIC, cap=Severity.SUGGEST)

MIN_HEADROOM = Threshold(0.25, "With less free memory, the next larger batch would leave too little in reserve.")

SM_BUSY = Threshold(0.8, "NVIDIA's DCGM guide: effective use of a GPU needs 0.8 or more; 0.5 is ineffective.")

MIN_LAUNCH_BOUND = Threshold(0.2, "If the GPU waits for launches a fifth of the time, larger kernels fill the gaps.")

# Tensor cores work best with multiples of 8 in every dimension of a matmul.
MULTIPLE = 8

# Largest factor to advise at once: beyond it, the learning rate must be searched again (assumption).
MOST = 4

# Share of the idle time of multiprocessors that the larger batch fills: low, expected, high (assumption).
FILLED = (0.0, 0.5, 1.0)


def when(m: Metrics) -> Evidence | None:
    """If at least 25 % of GPU memory is free, and the GPU waits for launches for at least 20 % of the time or its
    multiprocessors are active for less than 80 % of the time outside data wait,
    """
    headroom = measure(m, memory.mem_headroom, ">=", MIN_HEADROOM)
    if not headroom.holds or (idle := _idle(m)) is None or _larger(m) <= input.batch_size(m):
        return None
    return Evidence((headroom, idle))


def then(m: Metrics, found: Evidence) -> Advice:
    """then raise the batch size as far as memory allows, and the learning rate with it."""
    batch, larger_batch, optimizer = input.batch_size(m), _larger(m), m.get(settings.optimizer)
    exponent, scaling = (
        (1.0, "the batch")
        if optimizer is not None and optimizer.name == "SGD"
        else (0.5, "the square root of the batch")
    )
    rate_changes = spelling(m).learning_rate((larger_batch / batch) ** exponent, f"grows with {scaling}")
    return Advice(
        then=f"Raise the batch size from {batch} to {larger_batch}; given the memory per sample, that fits.",
        changes=(*spelling(m).batch_size(larger_batch), *rate_changes),
        basis=f"Per sample: {larger_batch} samples instead of {batch} share the cost of the update, the collectives, "
        "the launch gaps and part of the idle multiprocessors' time.",
        effect=_effect(batch / larger_batch, _active(m)),
        memory=round(_slope(m).each * (larger_batch - batch)),
        risk="Medium: it changes the optimization. Compare the loss at equal numbers of samples. Beyond the "
        "critical batch size, training needs more samples.",
    )


def _idle(m: Metrics) -> Measurement | None:
    """Return the fact that shows that a batch does not fill the GPU; None if it does.

    Raises:
        Missing: the metrics that were measured cannot decide.
    """
    launch_bound = m.get(gpu.launch_bound_index)
    if launch_bound is not None and launch_bound >= m[MIN_LAUNCH_BOUND]:
        return measure(m, gpu.launch_bound_index, ">=", MIN_LAUNCH_BOUND)
    active_share = _active(m)
    if active_share is not None and active_share < m[SM_BUSY]:
        metric = gpu.reached_multiprocessors if m.get(hardware.sm_active) is None else hardware.sm_active
        return Measurement(metric, m[metric], m[SM_BUSY], "<")
    if active_share is None:
        m[hardware.sm_active]
    m[gpu.launch_bound_index]  # raises Missing if unknown: it may show what sm_active does not
    return None


def _active(m: Metrics) -> float | None:
    """Return SM activity outside the time spent waiting for data, because a larger batch does not shorten that wait.

    Without counters (before Hopper), return the share of multiprocessors that kernels reach while they run; None
    without either.
    """
    active_share, fed_share = m.get(hardware.sm_active), 1 - (m.get(step.data_wait_fraction) or 0.0)
    if active_share is None:
        return m.get(gpu.reached_multiprocessors)
    return active_share if fed_share <= active_share else active_share / fed_share


def _slope(m: Metrics) -> Slope:
    return slope_of_one(input.batch_size(m), memory.used(m), m[memory.mem_activations])


def _larger(m: Metrics) -> int:
    """Return the largest multiple of 8 that fits, up to 4 times the batch and up to the declared target."""
    slope, batch = _slope(m), input.batch_size(m)
    limit = MOST * batch
    if slope.each > 0:
        limit = min(limit, slope.largest(m[gpu.device].memory_total))
    target = m[goals.target_per_rank]
    if target is not None:
        limit = min(limit, int(target / (m.get(step.micro_steps_per_step) or 1.0)))
    return limit // MULTIPLE * MULTIPLE


def _effect(ratio: float, active: float | None) -> Effect:
    """Return the effect on the time for the present number of samples.

    Costs that are fixed per step shrink by `ratio`, the present batch size over the new one.
    """
    idle_share = 0.0 if active is None else 1 - active

    def effect(state: State, scenario: Scenario) -> State:
        computing_seconds = state.phases.get("forward", 0.0) + state.phases.get("backward", 0.0)
        gap_seconds = min(state.launch_idle, computing_seconds)
        fixed_seconds = gap_seconds + scenario.of(FILLED) * idle_share * (computing_seconds - gap_seconds)
        pass_factor = 1 - (1 - ratio) * fixed_seconds / computing_seconds if computing_seconds > 0 else 1.0
        for phase, factor in (
            ("forward", pass_factor),
            ("backward", pass_factor),
            ("optimizer", ratio),
            ("communication", ratio),
        ):
            state = state.scaled(phase, factor)
        return replace(state, launch_idle=state.launch_idle * ratio, launch=state.launch * ratio)

    return effect
