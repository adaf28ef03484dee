"""Hand-computed memory; GB = 1e9 bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.models.memory import (
    FILL,
    Layers,
    Slope,
    bytes_each,
    checkpoint_throughput,
    eight_bit_moments,
    layers,
    slope,
    slope_of_one,
    states,
)

GB = 1e9
MIXED_ADAM = (2, 2, 12)
LLAMA = Layers(number=32, activations=570.4e6, boundary=33.6e6)


@pytest.mark.parametrize(
    ("precision", "optimizer", "whole", "state"),
    [
        ("fp32", "adamw", 16, 8),
        ("autocast", "adamw", 16, 8),
        ("mixed", "adamw", 16, 12),
        ("bf16", "adamw", 8, 4),
        ("fp32", "adamw8bit", 10.03, 2.03),
        ("mixed", "adamw8bit", 10.03, 6.03),
        ("bf16", "adamw8bit", 6.03, 2.03),
        ("fp32", "momentum", 12, 4),
        ("fp32", "lion", 12, 4),
        ("fp32", "sgd", 8, 0),
    ],
)
def test_bytes_per_parameter(precision: str, optimizer: str, whole: float, state: float):
    each = bytes_each(precision, optimizer)
    assert sum(each) == pytest.approx(whole)
    assert each[2] == pytest.approx(state)


def test_adam_in_fp32_and_with_a_master_copy():
    """The second is K = 12 of Rajbhandari et al., "ZeRO", SC 2020."""
    assert bytes_each("fp32", "adam") == (4, 4, 8)
    assert bytes_each("mixed", "adam") == MIXED_ADAM


def test_8_bit_adam():
    assert eight_bit_moments([3 * 10**9]) / GB == pytest.approx(6.09)
    assert eight_bit_moments([4096] * 10 + [4095] * 10) == pytest.approx(2.03 * 40960 + 8 * 40950)


@pytest.mark.parametrize(
    ("parameters", "ranks", "totals"),
    [(1.5e9, 8, (24, 8.25, 5.625, 3.0)), (7.5e9, 64, (120, 31.4, 16.6, 1.875))],
)
def test_zero_by_stage(parameters: float, ranks: int, totals: tuple[float, ...]):
    whole = states(parameters, MIXED_ADAM)
    assert [whole.sharded(stage, ranks).total / GB for stage in range(4)] == pytest.approx(totals, rel=0.003)


def test_zero_shards_the_optimizer_first():
    whole = states(1.5e9, MIXED_ADAM)
    assert whole.optimizer / GB == pytest.approx(18)
    assert whole.sharded(1, 8).optimizer / GB == pytest.approx(2.25)
    assert whole.sharded(1, 8).total - whole.total == pytest.approx(-15.75 * GB)


@pytest.mark.parametrize(("every", "kept"), [(None, 18.25), (4, 14.53), (2, 10.23), (1, 1.64)])
def test_memory_kept_by_checkpointing_every_nth_layer(every: int | None, kept: float):
    assert LLAMA.kept(every) / GB == pytest.approx(kept, abs=0.01)


@pytest.mark.parametrize(("need", "every"), [(4e9, 3), (9e9, 1), (100e9, 1)])
def test_the_largest_n_that_frees_enough(need: float, every: int):
    assert LLAMA.every(need) == every


def test_the_chosen_n_frees_what_is_needed():
    assert LLAMA.kept(None) - LLAMA.kept(LLAMA.every(4e9)) >= 4e9


@given(st.integers(1, 300), st.floats(1, 1e9), st.floats(0, 1), st.floats(0, 1e11))
def test_the_chosen_n_is_the_largest_that_frees_enough(number: int, each: float, share: float, need: float):
    some = Layers(number=number, activations=each, boundary=share * each)
    every = some.every(need)
    freed = some.kept(None) - some.kept(every)
    enough = freed >= need - 1e-6 * some.kept(None)
    assert enough or every == 1
    assert some.kept(None) - some.kept(every + 1) <= need + 1e-6 * some.kept(None)
    assert some.kept(1) <= some.kept(every)


def test_layers_of_measured_activations():
    assert layers(32, 32 * 570.4e6).boundary == pytest.approx(33.6e6, rel=0.003)


def test_largest_batch_from_two_measurements():
    line = slope((8, 21e9), (16, 31e9))
    assert (line.fixed, line.each) == (11e9, 1.25e9)
    assert line.largest(79e9) == 49
    assert line.largest(79e9, multiple=8) == 48
    assert line.peak(49) <= 0.92 * 79e9 < line.peak(50)


def test_largest_batch_from_one_measurement_is_conservative():
    assert slope_of_one(16, 31e9, 22e9).largest(79e9) <= slope((8, 21e9), (16, 31e9)).largest(79e9)


def test_gradients_persist_across_micro_batches():
    """Of the 79 in use, 20 are activations next to 4 of gradients, or 24 before there are any gradients."""
    cut = slope_of_one(16, 79, 20, staying=4)

    assert cut.peak(16) == 79 + 4
    assert cut.peak(8) == 59 + 24 / 2
    assert slope_of_one(16, 79, 20).peak(8) == 59 + 20 / 2


@pytest.mark.parametrize(("fixed", "ratio"), [(40, 1.26), (5, 0.82)])
def test_checkpointing_for_throughput(fixed: float, ratio: float):
    assert checkpoint_throughput(fixed, 10, 4, 16) == pytest.approx(ratio, abs=0.005)


def test_larger_batch_amortizes_fixed_cost():
    assert checkpoint_throughput(40, 10, 4, 16, recompute=1) == pytest.approx(16 * 80 / (4 * 200))
    assert checkpoint_throughput(0, 10, 4, 16, recompute=1) == pytest.approx(1)


@given(st.integers(1, 64), st.floats(1e6, 1e10), st.floats(0, 1e11), st.floats(1e9, 2e11))
def test_the_largest_batch_fits_and_one_more_does_not(multiple: int, each: float, fixed: float, capacity: float):
    line = Slope(fixed, each)
    most = line.largest(capacity, multiple)
    assert most % multiple == 0
    assert most == 0 or line.peak(most) <= FILL * capacity * (1 + 1e-9)
    assert line.peak(most + multiple) >= FILL * capacity * (1 - 1e-9) or line.peak(0) > FILL * capacity


@given(st.floats(0, 100), st.floats(0.01, 100), st.integers(1, 100), st.integers(0, 100), st.floats(1, 2))
def test_recomputing_for_the_same_batch_never_pays(fixed: float, each: float, batch: int, more: int, recompute: float):
    assert checkpoint_throughput(fixed, each, batch, batch, recompute) <= 1 + 1e-9
    assert checkpoint_throughput(fixed, each, batch, batch + more, 1) >= 1 - 1e-9


@pytest.mark.parametrize(
    "nonsense",
    [
        lambda: bytes_each("fp32", "adagrad"),
        lambda: bytes_each("fp4", "adam"),
        lambda: Layers(number=0, activations=1, boundary=0),
        lambda: Layers(number=1, activations=1, boundary=2),
        lambda: LLAMA.kept(0),
        lambda: slope((8, 1), (8, 2)),
        lambda: slope_of_one(0, 1, 1),
        lambda: Slope(1, 0).largest(10),
        lambda: checkpoint_throughput(1, 1, 0, 1),
        lambda: checkpoint_throughput(1, 1, 1, 1, recompute=0.5),
    ],
)
def test_nonsense_is_refused(nonsense):
    with pytest.raises(ValueError, match=r"unknown|layer|segment|slope|batch|step"):
        nonsense()
