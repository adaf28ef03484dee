"""The few things that advice does to a step; a rule's gain is one of them, or several in turn.

Every share and divisor is a triple: what the change brings at the low, expected and high gain (10th, 50th and 90th
percentile). They act on the step as the changes before left it, so two changes of the same seconds gain them once.
Shares may be negative: then the change costs time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from advisor.models.state import Effect, Scenario, State

Triple = tuple[float, float, float]

COMPUTE = ("forward", "backward")
"""Phases in which matrix products and memory-bound kernels run."""
LAUNCHED = ("forward", "backward", "optimizer")
"""Phases in which kernels are launched."""
LOADING = ("loader_overhead", "h2d")
"""Phases in which a batch is handed over: a faster model leaves them as they are."""


# Of a gain that is known by its upper end alone (assumption).
PARTLY: Triple = (0.5, 0.8, 1.0)


def up_to(most: float) -> Triple:
    """Half, 0.8 and all of a share that nothing is known of but that it cannot be more."""
    low, expected, high = (most * part for part in PARTLY)
    return (low, expected, high)


def in_turn(*effects: Effect) -> Effect:
    """One change after the other."""

    def effect(state: State, scenario: Scenario) -> State:
        for change in effects:
            state = change(state, scenario)
        return state

    return effect


def remove(*parts: str, shares: Triple, portion: float = 1.0) -> Effect:
    """These shares of phases, or of what falls between steps, are gone; of only a `portion` of them if given.

    What runs on the GPU in forward and backward shrinks with them. ValueError for more than everything, a portion
    outside 0..1, or shares that do not ascend.
    """
    _check(shares)
    _check_portion(portion)

    def effect(state: State, scenario: Scenario) -> State:
        return _scaled(state, parts, 1 - portion * scenario.of(shares))

    return effect


def divide(*parts: str, by: Triple, portion: float = 1.0) -> Effect:
    """A `portion` of these parts becomes so many times as fast. ValueError unless `by` is positive and ascends."""
    return remove(*parts, shares=shares_of(by), portion=portion)


def divide_step(by: Triple) -> Effect:
    """Everything but handing over batches becomes so many times as fast; the loader's pace stays a floor."""
    shares = shares_of(by)

    def effect(state: State, scenario: Scenario) -> State:
        parts = (phase for phase in state.phases if phase not in LOADING)
        return _scaled(state, parts, 1 - scenario.of(shares))

    return effect


def remove_run(shares: Triple) -> Effect:
    """These shares of the whole run are gone, whatever their steps are made of: skipped, recompiled, never trained."""
    _check(shares)

    def effect(state: State, scenario: Scenario) -> State:
        left = 1 - scenario.of(shares)
        workers = state.workers
        if workers is not None:
            workers = replace(workers, t_w=workers.t_w * left, floor=workers.floor * left)
        return replace(
            _scaled(state, (*state.phases, *state.between), left),
            load=state.load * left,
            supply=state.supply * left,
            workers=workers,
            launch=state.launch * left,
            launch_idle=state.launch_idle * left,
        )

    return effect


def remove_seconds(*parts: str, seconds: float, shares: Triple) -> Effect:
    """These shares of so many seconds that lie somewhere in the parts are gone; never more than the parts have."""
    _check(shares)
    if seconds < 0:
        raise ValueError(f"no work takes {seconds} s")

    def effect(state: State, scenario: Scenario) -> State:
        return shorter(state, seconds * scenario.of(shares), parts)

    return effect


def lengthen(phase: str, seconds: Triple) -> Effect:
    """A phase takes so many seconds more, most at the low gain. ValueError unless they descend to no less than 0."""
    if not seconds[0] >= seconds[1] >= seconds[2] >= 0:
        raise ValueError(f"a cost is highest at the low gain and never negative: {seconds}")

    def effect(state: State, scenario: Scenario) -> State:
        return state.longer(phase, scenario.of(seconds))

    return effect


def divide_matmul(by: Triple, portion: float = 1.0) -> Effect:
    """A `portion` of the matrix products and convolutions becomes so many times as fast."""
    shares = shares_of(by)
    _check_portion(portion)

    def effect(state: State, scenario: Scenario) -> State:
        gone = state.matmul * portion * scenario.of(shares)
        return replace(shorter(state, gone, COMPUTE, kernels=False), matmul=state.matmul - gone)

    return effect


def divide_membound(by: Triple, portion: float = 1.0) -> Effect:
    """A `portion` of the memory-bound kernels becomes so many times as fast."""
    shares = shares_of(by)
    _check_portion(portion)

    def effect(state: State, scenario: Scenario) -> State:
        gone = state.membound * portion * scenario.of(shares)
        return replace(shorter(state, gone, COMPUTE, kernels=False), membound=state.membound - gone)

    return effect


def remove_launch_idle(shares: Triple) -> Effect:
    """Kernels are launched with so much less work of the host: the GPU idles less, and the host's floor falls alike."""
    _check(shares)

    def effect(state: State, scenario: Scenario) -> State:
        share = scenario.of(shares)
        busier = shorter(state, state.launch_idle * share, LAUNCHED, kernels=False)
        return replace(busier, launch_idle=state.launch_idle * (1 - share), launch=state.launch * (1 - share))

    return effect


def relieve_host(shares: Triple) -> Effect:
    """The host enqueues a step in so much less time: its floor falls, the step itself only with another change."""
    _check(shares)

    def effect(state: State, scenario: Scenario) -> State:
        return replace(state, launch=state.launch * (1 - scenario.of(shares)))

    return effect


def remove_wait(shares: Triple) -> Effect:
    """These shares of the time in which no batch is ready are gone, be it in series with the step or its pace."""
    _check(shares)

    def effect(state: State, scenario: Scenario) -> State:
        left = 1 - scenario.of(shares)
        supply = state.workers.supply(state.compute) if state.workers else state.supply
        busy = state.compute + state.load
        wait = max(0.0, supply - busy)
        serial = state.load * left
        if wait == 0:
            return replace(state, load=serial)
        # What is left of the wait is a pace of its own: it no longer follows from a number of workers.
        return replace(state, load=serial, supply=state.compute + serial + wait * left, workers=None)

    return effect


def faster_batches(share: float, removed: Triple, *, reading: bool = False) -> Effect:
    """A stage that makes up this share of a worker's time for a batch loses these shares: t_w (1 - share x removed).

    `reading`: it is waiting for storage that goes; the CPU work of a batch stays, and storage's own floor falls alike.
    """
    _check(removed)
    _check_portion(share)

    def effect(state: State, scenario: Scenario) -> State:
        left = 1 - share * scenario.of(removed)
        workers = state.workers
        if workers is not None:
            busy = min(1.0, workers.u_w / left if left > 0 else 1.0) if reading else workers.u_w
            floor = workers.floor * (left if reading else 1.0)
            faster = replace(workers, t_w=workers.t_w * left, u_w=busy, floor=floor)
            # W* for faster batches may be a worker short of what contention takes; then the number stays as it was.
            compute = state.compute
            workers = faster if faster.supply(compute) <= workers.supply(compute) else workers
        return replace(state, load=state.load * left, supply=state.supply * left, workers=workers)

    return effect


def shares_of(by: Triple) -> Triple:
    """1 - 1/s: what is gone of something that becomes s times as fast. ValueError unless positive and ascending."""
    if not 0 < by[0] <= by[1] <= by[2]:
        raise ValueError(f"speed-ups are positive and ascend from low to high gain: {by}")
    low, expected, high = (1 - 1 / s for s in by)
    return (low, expected, high)


def shorter(state: State, seconds: float, parts: Iterable[str], *, kernels: bool = True) -> State:
    """So much less of these parts together, each in proportion to its length; never below zero.

    With `kernels`, the matrix products and memory-bound kernels in them shrink in proportion; without, they stay.
    """
    present = [part for part in parts if part in state.phases or part in state.between]
    total = sum(state.between.get(part, state.phases.get(part, 0.0)) for part in present)
    factor = max(0.0, 1 - seconds / total) if total > 0 else 1.0
    if kernels:
        return _scaled(state, present, factor)
    for part in present:
        state = state.scaled(part, factor)
    return state


def _scaled(state: State, parts: Iterable[str], factor: float) -> State:
    """Parts that were measured, times `factor`, and the kernels in them."""
    before = _computing(state)
    for part in parts:
        if part in state.phases or part in state.between:
            state = state.scaled(part, factor)
    left = _computing(state) / before if before > 0 else 1.0
    return replace(state, matmul=state.matmul * left, membound=state.membound * left)


def _computing(state: State) -> float:
    return sum(state.phases.get(phase, 0.0) for phase in COMPUTE)


def _check(shares: Triple) -> None:
    if not shares[0] <= shares[1] <= shares[2] <= 1:
        raise ValueError(f"shares that go ascend from low to high gain, to 1 at most: {shares}")


def _check_portion(portion: float) -> None:
    if not 0 <= portion <= 1:
        raise ValueError(f"a portion lies between 0 and 1: {portion}")
