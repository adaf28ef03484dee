"""The order of advice, by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.models.ranking import score, updated

CONFIDENCE = st.floats(0, 1)
TRIALS = st.integers(0, 1000)


@pytest.mark.parametrize(
    ("expected", "confidence", "difficulty", "wanted"),
    [(0.4, 0.9, 1, 0.36), (0.4, 0.75, 2, 0.15), (0.4, 0.6, 3, 0.06), (-0.1, 0.4, 1, -0.04)],
)
def test_score(expected: float, confidence: float, difficulty: int, wanted: float):
    assert score(expected, confidence, difficulty) == pytest.approx(wanted)


@pytest.mark.parametrize(("hits", "misses"), [(0, 0), (1, 0), (0, 1), (7, 3)])
def test_two_thirds_are_the_prior_of_two_and_one(hits: int, misses: int):
    assert updated(2 / 3, hits, misses) == pytest.approx((hits + 2) / (hits + misses + 3))


@pytest.mark.parametrize(
    ("confidence", "hits", "misses", "wanted"), [(0.9, 0, 0, 0.9), (0.4, 3, 0, 0.7), (0.9, 0, 3, 0.45)]
)
def test_trials_move_the_confidence_of_a_class(confidence: float, hits: int, misses: int, wanted: float):
    assert updated(confidence, hits, misses) == pytest.approx(wanted)


@given(CONFIDENCE, TRIALS, TRIALS)
def test_a_hit_never_lowers_it_nor_a_miss_raises_it(confidence: float, hits: int, misses: int):
    now = updated(confidence, hits, misses)
    assert 0 <= updated(confidence, hits, misses + 1) <= now <= updated(confidence, hits + 1, misses) <= 1


@given(st.floats(0, 1), st.floats(0, 1), CONFIDENCE)
def test_more_gain_and_less_effort_come_first(gain: float, less: float, confidence: float):
    more = max(gain, less)
    assert score(more, confidence, 1) >= score(min(gain, less), confidence, 1)
    assert score(more, confidence, 1) >= score(more, confidence, 2) >= score(more, confidence, 3)


@pytest.mark.parametrize(
    "nonsense",
    [lambda: score(0.1, 1.1, 1), lambda: score(0.1, 0.5, 4), lambda: updated(0.5, -1, 0)],
)
def test_nonsense_is_refused(nonsense):
    with pytest.raises(ValueError, match=r"no|nothing"):
        nonsense()
