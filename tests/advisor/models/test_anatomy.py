"""Memory at other settings, with numbers that can be computed by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from advisor.models.anatomy import Anatomy, MemorySettings
from advisor.models.memory import States, slope_of_one

NOW = MemorySettings(batch=8, moments="adamw")
RUN = Anatomy(
    now=NOW,
    capacity=100.0,
    states=States(4.0, 4.0, 8.0),
    unit=0.5,
    activations=34.0,
    rest=2.0,
    blocks=17,
    parameters=1.0,
)


def test_current_settings_reproduce_measurement():
    parts = RUN.parts(NOW)

    assert (parts.params, parts.grads, parts.optim, parts.gathered) == (4, 4, 8, 0)
    assert (parts.activations, parts.rest, parts.total) == (34, 2, 52)


def test_activations_grow_with_the_batch_and_nothing_else_does():
    assert RUN.parts(replace(NOW, batch=16)).total == 52 + 34


@pytest.mark.parametrize(("stage", "total"), [(0, 16), (1, 10), (2, 7), (3, 4 + 1)])
def test_zero_shards_the_states_and_stage_3_gathers_two_units(stage, total):
    parts = RUN.parts(replace(NOW, stage=stage, ranks=4))

    assert parts.params + parts.grads + parts.optim + parts.gathered == total


def test_one_gpu_gathers_nothing():
    assert RUN.parts(replace(NOW, stage=3)).total == 52


def test_a_checkpointed_block_keeps_its_input_and_one_is_recomputed():
    assert RUN.parts(replace(NOW, every=1)).activations == pytest.approx(2 + 2)  # 17 inputs of 2 / 17; one block
    assert RUN.parts(replace(NOW, every=17)).activations == pytest.approx(2 / 17 + 34)


def test_another_optimizer_keeps_its_own_state():
    assert RUN.parts(replace(NOW, moments="lion")).optim == 4
    assert RUN.parts(replace(NOW, moments="adamw8bit")).optim == pytest.approx(2.03)
    assert RUN.parts(replace(NOW, moments="sgd")).optim == 0


def test_autocast_holds_copies_of_the_weights_and_smaller_activations():
    parts = RUN.parts(replace(NOW, autocast=True))

    assert (parts.gathered, parts.activations) == (2, pytest.approx(0.55 * 34))


def test_largest_batch_agrees_with_rules():
    assert RUN.largest(NOW) == slope_of_one(8, 52, 34).largest(100) == 17
    assert replace(RUN, capacity=15).largest(NOW) == 0
    assert replace(RUN, activations=0).largest(NOW) is None
