"""Hand-computed memory; GB = 1e9 bytes."""

import pytest

from advisor.models.memory import (
    FP32_ADAM,
    MIXED_ADAM,
    Layers,
    checkpoint_throughput,
    layer_activations,
    layers,
    logits,
    recompute_time,
    slope,
    slope_of_one,
    states,
)

GB = 1e9
LLAMA = Layers(number=32, activations=570.4e6, boundary=33.6e6)


def test_bytes_a_parameter():
    assert sum(FP32_ADAM) == sum(MIXED_ADAM) == 16


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
def test_what_checkpointing_every_nth_layer_keeps(every: int | None, kept: float):
    assert LLAMA.kept(every) / GB == pytest.approx(kept, abs=0.01)


@pytest.mark.parametrize(("every", "share"), [(4, 0.083), (2, 0.167), (1, 0.333)])
def test_what_it_costs(every: int, share: float):
    forward, backward = 1.0, 2.0
    assert recompute_time(forward, every) / (forward + backward) == pytest.approx(share, abs=0.001)


@pytest.mark.parametrize(("need", "every"), [(4e9, 3), (9e9, 1), (100e9, 1)])
def test_the_largest_n_that_frees_enough(need: float, every: int):
    assert LLAMA.every(need) == every


def test_the_chosen_n_frees_what_is_needed():
    assert LLAMA.kept(None) - LLAMA.kept(LLAMA.every(4e9)) >= 4e9


def test_layers_of_measured_activations():
    assert layers(32, 32 * 570.4e6).boundary == pytest.approx(33.6e6, rel=0.003)


def test_activations_of_gpt3():
    def layer(keeps: str) -> float:
        return layer_activations(2048, 1, 12288, 96, keeps=keeps)

    assert layer("scores") / GB == pytest.approx(2.869, abs=0.001)
    assert 96 * layer("scores") / GB == pytest.approx(275.4, abs=0.1)
    assert 96 * layer("no scores") / GB == pytest.approx(82.1, abs=0.1)
    assert layer("no scores") / layer("scores") - 1 == pytest.approx(-0.702, abs=0.001)
    assert 96 * layer("input") / GB == pytest.approx(4.83, abs=0.01)


def test_activations_of_mt_nlg():
    saved = layer_activations(2048, 1, 20480, 128, keeps="no scores") / layer_activations(2048, 1, 20480, 128) - 1
    assert saved == pytest.approx(-0.653, abs=0.001)


def test_logits():
    assert logits(8192, 1, 128256) / GB == pytest.approx(6.30, abs=0.01)


def test_the_largest_batch_from_two():
    line = slope((8, 21e9), (16, 31e9))
    assert (line.fixed, line.each) == (11e9, 1.25e9)
    assert line.largest(79e9) == 49
    assert line.peak(49) <= 0.92 * 79e9 < line.peak(50)


def test_the_largest_batch_from_one_errs_on_the_safe_side():
    assert slope_of_one(16, 31e9, 22e9).largest(79e9) <= slope((8, 21e9), (16, 31e9)).largest(79e9)


@pytest.mark.parametrize(("fixed", "ratio"), [(40, 1.26), (5, 0.82)])
def test_checkpointing_for_throughput(fixed: float, ratio: float):
    assert checkpoint_throughput(fixed, 10, 4, 16) == pytest.approx(ratio, abs=0.005)


def test_a_larger_batch_shares_what_is_fixed():
    assert checkpoint_throughput(40, 10, 4, 16, recompute=1) == pytest.approx(16 * 80 / (4 * 200))
    assert checkpoint_throughput(0, 10, 4, 16, recompute=1) == pytest.approx(1)
