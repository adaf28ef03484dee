"""Quantities as people write them."""

import pytest

from advisor.plan import quantities
from advisor.plan.quantities import capacity, count, duration, gb, parameters, peak, rate, seconds, share, size

GIB = 1024**3


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1.5B", 1.5e9),
        ("350M", 350e6),
        ("7.5e9", 7.5e9),
        ("8.03b", 8.03e9),
        ("1_500_000", 1.5e6),
        ("125,000,000", 125e6),
    ],
)
def test_counts(text, value):
    assert count(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [("1.2GB", 1.2e9), ("1.2 GiB", 1.2 * GIB), ("500MB", 5e8), ("79e9", 79e9), ("8g", 8e9), ("12B", 12)],
)
def test_sizes(text, value):
    assert size(text) == pytest.approx(value, abs=1)


@pytest.mark.parametrize(
    ("text", "value"), [("24GB", 24 * GIB), ("24 GiB", 24 * GIB), ("23034MiB", 23034 * 1024**2), ("79e9", 79e9)]
)
def test_gpu_memory_in_gb_is_read_as_gib(text, value):
    assert capacity(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [("20s", 20), ("5m", 300), ("2h", 7200), ("1h30m", 5400), ("1.5d", 129600), ("250ms", 0.25), ("2 H", 7200)],
)
def test_times(text, value):
    assert seconds(text) == pytest.approx(value)
    assert duration(text) == seconds(text)


def test_a_duration_may_have_no_unit():
    assert (duration("90"), duration(" 0.5 ")) == (90, 0.5)


@pytest.mark.parametrize(("text", "value"), [("65%", 0.65), ("0.65", 0.65), ("0", 0), ("100%", 1)])
def test_shares(text, value):
    assert share(text) == pytest.approx(value)


def test_rates_and_peaks():
    assert rate("25GB/s") == 25e9
    assert peak("8:21GB") == (8, 21e9)


@pytest.mark.parametrize(
    ("read", "text"),
    [
        ("count", "0"),
        ("count", "-1B"),
        ("count", "1.5 apples"),
        ("count", "nan"),
        ("count", "1e999"),
        ("count", ""),
        ("size", "24"),
        ("size", "0GB"),
        ("size", "GB"),
        ("capacity", "24 bananas"),
        ("seconds", "20"),
        ("seconds", "2h and a bit"),
        ("seconds", "0s"),
        ("seconds", "5 weeks"),
        ("duration", "0s"),
        ("duration", "5 parsecs"),
        ("share", "65"),
        ("share", "101%"),
        ("share", "-5%"),
        ("peak", "8"),
        ("peak", "0:21GB"),
        ("peak", "8:21"),
    ],
)
def test_invalid_amount_error_shows_how_to_write_it(read, text):
    with pytest.raises(ValueError, match=r"\w\. \w|\. Give|Write") as raised:
        getattr(quantities, read)(text)

    assert repr(text) in str(raised.value) or repr(text.partition(":")[2]) in str(raised.value)


def test_bytes_are_printed_in_decimal_gb():
    assert (gb(5.625e9), gb(0.78e9), gb(2560e9)) == ("5.62", "0.78", "2,560")
    assert (parameters(1.5e9), parameters(350e6), parameters(8.03e9)) == ("1.5B", "350M", "8.03B")
