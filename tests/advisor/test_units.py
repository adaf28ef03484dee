"""Numbers as people read them."""

import pytest

from advisor import units


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.1048, "105 ms"),
        (0.01, "10 ms"),
        (2.5e-7, "0.25 us"),
        (1.0, "1 s"),
        (119.6, "120 s"),
        (150, "2 min 30 s"),
        (4020, "1 h 7 min"),
        (0, "0 s"),
    ],
)
def test_seconds(value, text):
    assert units.seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.614, "61%"),
        (0.0041, "0.4%"),
        (0.05, "5%"),
        (0.0997, "10%"),
        (0.00001, "under 0.1%"),
        (0, "0%"),
        (1, "100%"),
        (-0.3, "-30%"),
    ],
)
def test_share(value, text):
    assert units.share(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0 B"), (512, "512 B"), (2**24, "16 MiB"), (1.5 * 2**30, "1.5 GiB"), (-(2**30), "-1 GiB")]
)
def test_size(value, text):
    assert units.size(value) == text


@pytest.mark.parametrize(("number", "text"), [(0, "0 steps"), (1, "1 step"), (1200, "1,200 steps")])
def test_count(number, text):
    assert units.count(number, "step") == text


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.5, "count", "0.5"),
        (1234, "count", "1,234"),
        (0.4, "1", "40%"),
        (1.0, "1", "1"),
        (42, "1", "42"),
        (16e12, "FLOP/s", "16 TFLOP/s"),
        (2.5 * 1024**3, "B/s", "2.5 GiB/s"),
        (300.0, "W", "300 W"),
        (12345.6, "", "12,346"),
    ],
)
def test_quantity(value, unit, text):
    assert units.quantity(value, unit) == text
