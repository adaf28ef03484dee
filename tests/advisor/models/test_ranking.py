"""The order of advice, by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.models.ranking import score

CONFIDENCE = st.floats(0, 1)


@pytest.mark.parametrize(
    ("expected", "confidence", "difficulty", "wanted"),
    [(0.4, 0.9, 1, 0.36), (0.4, 0.75, 2, 0.15), (0.4, 0.6, 3, 0.06), (-0.1, 0.4, 1, -0.04)],
)
def test_score(expected: float, confidence: float, difficulty: int, wanted: float):
    assert score(expected, confidence, difficulty) == pytest.approx(wanted)


@given(st.floats(0, 1), st.floats(0, 1), CONFIDENCE)
def test_more_gain_and_less_effort_come_first(gain: float, less: float, confidence: float):
    more = max(gain, less)
    assert score(more, confidence, 1) >= score(min(gain, less), confidence, 1)
    assert score(more, confidence, 1) >= score(more, confidence, 2) >= score(more, confidence, 3)


@pytest.mark.parametrize(
    "nonsense",
    [lambda: score(0.1, 1.1, 1), lambda: score(0.1, 0.5, 4)],
)
def test_nonsense_is_refused(nonsense):
    with pytest.raises(ValueError, match=r"no|nothing"):
        nonsense()
