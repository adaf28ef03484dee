"""Losses of simulated runs that train alike, or do not."""

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.stats.equivalence import equivalence


def losses(number: int = 100, *, factor: float = 1.0, noise: float = 0.0, seed: int = 0) -> list[float]:
    random = Random(seed)
    return [2.3 * math.exp(-step / 80) * factor * math.exp(random.gauss(0, noise)) for step in range(number)]


def test_the_same_losses_are_equivalent():
    found = equivalence(losses(), losses(), draws=100)
    assert found.losses_agree
    assert (found.difference, found.low, found.high, found.lost) == (0, 0, 0, 0)


def test_rounding_in_another_order_is_equivalent():
    found = equivalence(losses(), losses(noise=0.002), draws=500)
    assert found.low < found.difference < found.high
    assert found.losses_agree


@pytest.mark.parametrize("factor", [0.98, 1.02])
def test_loss_off_by_two_percent_is_not_equivalent(factor: float):
    found = equivalence(losses(), losses(factor=factor, noise=0.002), draws=500)
    assert found.difference == pytest.approx(math.log(factor), abs=0.001)
    assert not found.losses_agree


def test_losses_too_noisy_to_tell_are_not_called_equivalent():
    found = equivalence(losses(30), losses(30, noise=0.05), draws=500)
    assert found.high - found.low > found.margin
    assert not found.losses_agree


def test_losses_may_neither_agree_nor_differ():
    noisy = [1.0 + 0.1 * (-1) ** (step // 5) for step in range(60)]

    found = equivalence([1.0] * 60, noisy)
    assert (found.losses_agree, found.differs) == (False, False)
    assert equivalence([1.0] * 60, [1.02] * 60).differs
    assert equivalence([1.0] * 60, [0.98] * 60).differs


def test_margin_is_twice_the_spread_between_identical_runs():
    changed = losses(factor=1.008, noise=0.002)
    assert not equivalence(losses(), changed, draws=500).losses_agree
    wide = equivalence(losses(), changed, spread=0.006, draws=500)
    assert wide.margin == pytest.approx(0.012)
    assert wide.losses_agree


@pytest.mark.parametrize("gone", [None, math.nan, math.inf])
@pytest.mark.parametrize(("number", "holds"), [(1, True), (2, False)])
def test_one_percent_of_losses_may_be_missing(gone: float | None, number: int, holds: bool):
    changed: list[float | None] = [*losses()]
    for step in range(number):
        changed[10 * step] = gone
    found = equivalence(losses(), changed, draws=100)
    assert found.lost == pytest.approx(number / 100)
    assert found.losses_agree is holds


@given(st.integers(10, 60), st.floats(0.9, 1.1), st.floats(0, 0.02), st.integers(0, 100))
def test_equivalence_is_symmetric(number: int, factor: float, noise: float, seed: int):
    one, other = losses(number), losses(number, factor=factor, noise=noise, seed=seed)
    there, back = equivalence(one, other, draws=60), equivalence(other, one, draws=60)
    assert back.difference == pytest.approx(-there.difference)
    assert (back.low, back.high) == pytest.approx((-there.high, -there.low))


@pytest.mark.parametrize(
    ("unchanged", "changed", "message"),
    [
        ([1.0] * 20, [1.0] * 19, "same steps of two runs"),
        ([1.0] * 9, [1.0] * 9, "fewer than two blocks"),
        ([1.0] * 20, [math.nan] * 20, "fewer than two blocks"),
        ([1.0] * 20, [-1.0] * 20, "zero or less"),
    ],
)
def test_unusable_losses_are_refused(unchanged: list, changed: list, message: str):
    with pytest.raises(ValueError, match=message):
        equivalence(unchanged, changed)
