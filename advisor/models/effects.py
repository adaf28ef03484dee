"""The basic effects of advice on a step; a rule's gain is one of them, or several in sequence.

Every share and divisor is a triple for the low, expected and high gain (10th, 50th and 90th percentile). Effects act
on the step as earlier changes left it, so two changes that save the same seconds save them once. Shares may be
negative; the change then costs time.

A ValueError is raised for shares that do not ascend or lie above 1, for divisors that do not ascend or are not
positive, for a portion outside 0 to 1, and for negative seconds.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from advisor.models.state import Effect, Scenario, State

Triple = tuple[float, float, float]

COMPUTE = ("forward", "backward")
"""Phases in which matmuls and memory-bound kernels run."""
LAUNCHED = ("forward", "backward", "optimizer")
"""Phases in which kernels are launched."""
ANYWHERE = (*LAUNCHED, "sync", "other")
"""Phases in which kernels run if a CUDA graph is replayed, which calls neither forward nor backward."""
LOADING = ("loader_overhead", "h2d")
"""Phases in which a batch is transferred; a faster model leaves them unchanged."""


# Shares of a gain of which only the upper limit is known (assumption).
PARTLY: Triple = (0.5, 0.8, 1.0)


def up_to(most: float) -> Triple:
    """Return half, 0.8 and all of a share of which only the upper limit is known."""
    low, expected, high = (most * share for share in PARTLY)
    return (low, expected, high)


def in_turn(*effects: Effect) -> Effect:
    """Return the effect of several changes, one after the other."""

    def effect(state: State, scenario: Scenario) -> State:
        for change in effects:
            state = change(state, scenario)
        return state

    return effect


def remove(*parts: str, shares: Triple, portion: float = 1.0) -> Effect:
    """Return the effect of removing these shares of phases, or of the time between steps.

    With `portion`, only that part of them is affected. GPU work in forward and backward shrinks with the phases.
    """
    _check_portion(portion)
    return _by(shares, lambda state, share: _scaled(state, parts, 1 - portion * share))


def divide(*parts: str, by: Triple, portion: float = 1.0) -> Effect:
    """Return the effect of dividing the time of a `portion` of these parts."""
    return remove(*parts, shares=shares_of(by), portion=portion)


def divide_step(by: Triple) -> Effect:
    """Return the effect of dividing the time of everything except transferring batches.

    The loader's pace remains a lower limit.
    """
    return _by(shares_of(by), lambda state, share: _scaled(state, state.phases.keys() - LOADING, 1 - share))


def remove_run(shares: Triple) -> Effect:
    """Return the effect of removing these shares of the whole run, whatever its steps contain.

    Examples are steps that are skipped, recompiled, or no longer trained.
    """
    return _by(shares, lambda state, share: state.times(1 - share))


def remove_seconds(*parts: str, seconds: float, shares: Triple) -> Effect:
    """Return the effect of removing shares of some seconds that are spread over the parts.

    It never removes more than the parts have.
    """
    if seconds < 0:
        raise ValueError(f"no work takes {seconds} s")
    return _by(shares, lambda state, share: shorter(state, seconds * share, parts))


def lengthen(phase: str, seconds: Triple) -> Effect:
    """Return the effect of adding seconds to a phase; the low gain adds the most.

    Raises:
        ValueError: the seconds do not descend, or one is negative.
    """
    if not seconds[0] >= seconds[1] >= seconds[2] >= 0:
        raise ValueError(f"a cost is highest at the low gain and never negative: {seconds}")
    return lambda state, scenario: state.longer(phase, scenario.of(seconds))


def divide_matmul(by: Triple, portion: float = 1.0) -> Effect:
    """Return the effect of dividing the time of a `portion` of the matmuls and convolutions."""
    _check_portion(portion)
    return _by(shares_of(by), lambda state, share: faster_kernels(state, matmul=state.matmul * portion * share))


def divide_membound(by: Triple, portion: float = 1.0) -> Effect:
    """Return the effect of dividing the time of a `portion` of the memory-bound kernels."""
    _check_portion(portion)
    return _by(shares_of(by), lambda state, share: faster_kernels(state, membound=state.membound * portion * share))


def remove_launch_idle(shares: Triple) -> Effect:
    """Return the effect of less host work for launches.

    The GPU idles less, and the host's lower limit on the step falls by the same shares.
    """

    def change(state: State, share: float) -> State:
        shorter_state = shorter(state, state.launch_idle * share, LAUNCHED, kernels=False)
        return replace(shorter_state, launch_idle=state.launch_idle * (1 - share), launch=state.launch * (1 - share))

    return _by(shares, change)


def relieve_host(shares: Triple) -> Effect:
    """Return the effect of less host time to enqueue a step.

    Only the host's lower limit falls; the step itself becomes shorter only with another change.
    """
    return _by(shares, lambda state, share: replace(state, launch=state.launch * (1 - share)))


def remove_wait(shares: Triple) -> Effect:
    """Return the effect of removing these shares of the time in which no batch is ready.

    The wait may be serial with the step or set its pace.
    """

    def change(state: State, share: float) -> State:
        remaining_share = 1 - share
        supply = state.workers.supply(state.compute) if state.workers else state.supply
        busy_seconds = state.compute + state.load
        wait = max(0.0, supply - busy_seconds)
        load = state.load * remaining_share
        if wait == 0:
            return replace(state, load=load)
        # The remaining wait sets a fixed pace, which no longer depends on the number of workers.
        return replace(state, load=load, supply=state.compute + load + wait * remaining_share, workers=None)

    return _by(shares, change)


def faster_batches(share: float, removed: Triple, *, reading: bool = False) -> Effect:
    """Return the effect of a faster stage of batch preparation: batch_time (1 - share x removed).

    `share` is the stage's share of a worker's time per batch. With `reading`, the time removed is waiting for storage,
    and the CPU work per batch stays.
    """
    _check_portion(share)

    def change(state: State, gone: float) -> State:
        remaining_share = 1 - share * gone
        workers = state.workers
        if workers is not None:
            cpu_share = (
                min(1.0, workers.worker_cpu_share / remaining_share if remaining_share > 0 else 1.0)
                if reading
                else workers.worker_cpu_share
            )
            faster_workers = replace(
                workers, batch_time=workers.batch_time * remaining_share, worker_cpu_share=cpu_share
            )
            # With contention, W* for faster batches may be one worker too few; then the workers stay as they are.
            compute = state.compute
            workers = faster_workers if faster_workers.supply(compute) <= workers.supply(compute) else workers
        return replace(state, load=state.load * remaining_share, supply=state.supply * remaining_share, workers=workers)

    return _by(removed, change)


def shares_of(by: Triple) -> Triple:
    """Return 1 - 1/s, the share of time removed by a speed-up of s."""
    if not 0 < by[0] <= by[1] <= by[2]:
        raise ValueError(f"speed-ups are positive and ascend from low to high gain: {by}")
    low, expected, high = (1 - 1 / speedup for speedup in by)
    return (low, expected, high)


def shorter(state: State, seconds: float, parts: Sequence[str], *, kernels: bool = True) -> State:
    """Return the state with these parts shorter by `seconds` in total, in proportion to their length.

    No part goes below zero. With `kernels`, the matmuls and memory-bound kernels in them shrink in proportion; without,
    they stay.
    """
    total = sum(map(state.seconds, parts))
    shorter_state = _scaled(state, parts, max(0.0, 1 - seconds / total) if total > 0 else 1.0)
    return shorter_state if kernels else replace(shorter_state, matmul=state.matmul, membound=state.membound)


def faster_kernels(state: State, *, matmul: float = 0.0, membound: float = 0.0) -> State:
    """Return the state with matmuls and memory-bound kernels shorter by these seconds.

    The seconds are taken from the forward and backward passes, or from the phases in `ANYWHERE` if these passes are
    shorter than half of the kernels, as in the replay of a CUDA graph.
    """
    phases = COMPUTE if _computing(state) >= (state.matmul + state.membound) / 2 else ANYWHERE
    shorter_state = shorter(state, matmul + membound, phases, kernels=False)
    return replace(shorter_state, matmul=state.matmul - matmul, membound=state.membound - membound)


def _scaled(state: State, parts: Iterable[str], factor: float) -> State:
    """Return the state with the measured parts, and the kernels in them, scaled by `factor`."""
    old_seconds = _computing(state)
    for part in parts:
        state = state.scaled(part, factor)
    ratio = _computing(state) / old_seconds if old_seconds > 0 else 1.0
    return replace(state, matmul=state.matmul * ratio, membound=state.membound * ratio)


def _computing(state: State) -> float:
    return sum(map(state.seconds, COMPUTE))


def _by(shares: Triple, change: Callable[[State, float], State]) -> Effect:
    """Return the effect that changes a state by the scenario's share."""
    if not shares[0] <= shares[1] <= shares[2] <= 1:
        raise ValueError(f"shares must ascend from low to high gain and be at most 1: {shares}")
    return lambda state, scenario: change(state, scenario.of(shares))


def _check_portion(portion: float) -> None:
    if not 0 <= portion <= 1:
        raise ValueError(f"a portion lies between 0 and 1: {portion}")
