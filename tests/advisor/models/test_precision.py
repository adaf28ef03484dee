"""Hand-computed rooflines; times in ms, rates in TFLOP/s."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.models.gpus import peaks
from advisor.models.precision import (
    ATTAINED_HALF,
    ATTAINED_TF32,
    MEMBOUND_SPEEDUP,
    UNCHANGED,
    MatmulCall,
    faster,
    fp8_speedup,
    memory_change,
    speedup,
    to_half,
    to_tf32,
)
from advisor.models.state import Scenario, State

A100 = peaks("NVIDIA A100-SXM4-80GB")
V100 = peaks("Tesla V100-SXM2-16GB")
RTX4090 = peaks("NVIDIA GeForce RTX 4090")
HALF, TF32 = (ATTAINED_HALF, MEMBOUND_SPEEDUP), (ATTAINED_TF32, UNCHANGED)


def step(m: float, b: float, o: float, idle: float, floor: float = 0.0) -> State:
    return State(
        phases={"forward": (m + b + idle) / 3, "backward": (m + b + idle) * 2 / 3, "optimizer": o},
        matmul=m,
        membound=b,
        launch=floor,
    )


@pytest.mark.parametrize(
    ("state", "achieved", "peak", "kind", "products", "whole"),
    [
        (step(70, 18, 5, 7), 16, A100.half, HALF, (5.85, 10.7, 14.6), (2.38, 3.19, 3.73)),
        (step(70, 18, 5, 7), 16, A100.tf32, TF32, (3.9, 5.85, 7.8), (2.09, 2.38, 2.57)),
        (step(40, 45, 5, 10), 90, A100.half, HALF, (1.04, 1.91, 2.60), (1.02, 1.47, 1.81)),
        (step(70, 18, 5, 7), 13, V100.half, HALF, (2.88, 5.29, 7.21), (1.84, 2.63, 3.15)),
        (step(70, 18, 5, 7), 50, RTX4090.half, HALF, (1, 1.82, 2.48), (1, 1.58, 1.99)),
        (step(70, 18, 5, 7), 50, RTX4090.tf32, TF32, (1, 1, 1.32), (1, 1, 1.21)),
        (step(20, 10, 5, 65, floor=90), 16, A100.half, HALF, (5.85, 10.7, 14.6), (1.11, 1.11, 1.11)),
    ],
    ids=[
        "A100 fp32 to bf16",
        "A100 fp32 to TF32",
        "A100 TF32 to bf16",
        "V100 fp32 to fp16",
        "4090 fp32 to bf16",
        "4090 fp32 to TF32",
        "A100 launch-bound",
    ],
)
def test_speedup(state: State, achieved: float, peak: float, kind: tuple, products: tuple, whole: tuple):
    attained, membound = kind
    of_products = speedup(attained, peak, (achieved * 1e12,) * 3)
    assert of_products == pytest.approx(products, rel=0.005)
    effect = faster([(1, of_products)], membound)
    assert [state.time / effect(state, s).time for s in Scenario] == pytest.approx(whole, abs=0.01)


def test_next_change_starts_from_remaining_work():
    state = step(70, 18, 5, 7)
    effect = to_half(1.0, 0.0, A100, 16e12)
    after = effect(state, Scenario.EXPECTED)
    assert after.matmul == pytest.approx(70 / 10.725)
    assert after.membound == pytest.approx(18 / 1.4)
    again = to_tf32(0.0, A100, 16e12)(after, Scenario.EXPECTED)
    assert again.time == pytest.approx(after.time)


def test_only_the_32_bit_part_speeds_up():
    state = step(70, 0, 15, 15)
    whole = to_half(1.0, 0.0, A100, 16e12)(state, Scenario.EXPECTED)
    part = to_half(0.5, 0.0, A100, 16e12)(state, Scenario.EXPECTED)
    assert state.time - part.time == pytest.approx((state.time - whole.time) / 2)


def gains(effect, state):
    return [state.time / effect(state, s).time for s in Scenario]


def test_assumed_rate_matches_typical_training():
    state = step(70, 18, 5, 7)
    measured, assumed = (gains(to_half(1.0, 0.0, A100, rate), state) for rate in (16e12, None))
    assert assumed == pytest.approx(measured, rel=0.02)


@pytest.mark.parametrize(("gpu", "low", "high"), [(A100, 1.5, 1.875), (RTX4090, 1.25, 1.8)], ids=["A100", "4090"])
def test_efficient_tf32_matmuls_are_efficient_in_16_bits(gpu, low, high):
    found = gains(to_half(0.0, 1.0, gpu, None), step(100, 0, 0, 0))
    assert (found[0], found[2]) == pytest.approx((low, high), rel=0.01)


def test_matmul_time_is_bounded_by_bandwidth_and_kernel_latency():
    tiny, thin, large = (
        MatmulCall(0.5, 6e-6),
        MatmulCall(0.25, 1e-4, numbers=51_000_000),
        MatmulCall(0.25, 1e-2, numbers=51_000_000),
    )
    state = step(100, 0, 0, 0)
    after = to_half(1.0, 0.0, A100, 4e12, (tiny, thin, large))(state, Scenario.HIGH)
    slow = 2 * 51e6 / 2039e9
    assert after.time == pytest.approx(50 / 2 + 25 / (1e-4 / slow) + 25 / (0.75 * 312 / 4), rel=0.01)
    unbounded = to_half(1.0, 0.0, A100, 4e12)(state, Scenario.HIGH)
    assert unbounded.time < 2


def test_replayed_graph_gains_without_forward_phase():
    state = State(phases={"optimizer": 2.0, "other": 98.0}, matmul=90.0)
    assert gains(to_half(1.0, 0.0, A100, 16e12), state)[0] > 2


def test_autocast_saves_activations_and_caches_weights():
    assert memory_change(10_000, 1_000) == 2_000 - 4_500
    assert memory_change(None, 1_000) is None


def test_fp8_speeds_up_large_matmuls_but_not_small_ones():
    large = (1.0, 7e14, 1e8)  # a second at 700 TFLOP/s
    converting = 3 * 1e8 / (0.8 * 3e12)
    small = (1.0, 1e12, 1e12)  # converting alone would take longer

    assert fp8_speedup([large], 2e15, 3e12) == pytest.approx([1 / (0.35 / a + converting) for a in (0.45, 0.6, 0.7)])
    assert fp8_speedup([small], 2e15, 3e12) == pytest.approx([1.0] * 3)
    assert fp8_speedup([large, small], 2e15, 3e12)[1] == pytest.approx(2 / (1 + 0.35 / 0.6 + converting))


shares = st.floats(0, 1)


@given(shares, shares, shares, st.floats(0, 1), st.floats(1e12, 1e15), st.sampled_from([A100, V100, RTX4090]))
def test_half_precision_never_slows_step_or_beats_its_floor(m, b, idle, floor, achieved, gpu):
    state = step(m, b, 0.1, idle)
    state = replace(state, launch=floor * state.time)
    for simt in (0.0, 0.3, 1.0):
        times = [to_half(simt, 1 - simt, gpu, achieved)(state, s).time for s in Scenario]
        assert times == sorted(times, reverse=True)
        assert state.launch <= times[2]
        assert times[0] <= state.time * (1 + 1e-9)


@pytest.mark.parametrize(
    "nonsense",
    [
        lambda: speedup(ATTAINED_HALF, 1e12, (0, 1, 1)),
        lambda: faster([(0.7, (1, 1, 1)), (0.7, (1, 1, 1))], UNCHANGED),
        lambda: faster([(-0.1, (1, 1, 1))], UNCHANGED),
    ],
)
def test_nonsense_is_refused(nonsense):
    with pytest.raises(ValueError, match=r"invalid rates|must not be negative"):
        nonsense()
