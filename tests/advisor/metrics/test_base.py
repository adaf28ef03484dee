import pytest

from advisor.metrics import cost, goals, gpu, host, input, memory, settings, stack, step
from advisor.metrics.base import Metric, Metrics, Missing, metric

EVERY = {
    value
    for module in (cost, goals, gpu, host, input, memory, settings, stack, step)
    for value in vars(module).values()
    if isinstance(value, Metric)
}


def test_every_metric_is_missing_with_a_remedy_where_nothing_was_recorded(subtests):
    for each in sorted(EVERY, key=lambda each: each.name):
        with subtests.test(each.name):
            with pytest.raises(Missing) as caught:
                Metrics(None)[each]
            assert caught.value.what
            assert caught.value.remedy
            assert each.doc.strip().endswith(".")


def test_names_are_unique():
    assert len({each.name for each in EVERY}) == len(EVERY)


def test_metric_label_defaults_to_its_name_in_words():
    @metric("1")
    def some_share(m):
        """A share."""
        return 1

    assert some_share.label == "some share"
    assert step.h2d_fraction.label not in ("", step.h2d_fraction.name.replace("_", " "))


@pytest.mark.parametrize("compute", [lambda m: 1 / 0, lambda m: 1e300**2])
def test_arithmetic_error_makes_metric_missing(compute):
    def damaged(m):
        """From a damaged recording."""
        return compute(m)

    with pytest.raises(Missing):
        Metrics(None)[metric("s")(damaged)]


def test_a_metric_is_computed_once():
    calls = []

    @metric("1")
    def counted(m):
        """Calls."""
        calls.append(1)
        return len(calls)

    m = Metrics(None)

    assert (m[counted], m[counted]) == (1, 1)


def test_a_missing_metric_stays_missing():
    @metric("1")
    def absent(m):
        """Never there."""
        raise Missing("gone", "look for it")

    m = Metrics(None)
    for _ in range(2):
        with pytest.raises(Missing, match="gone"):
            m[absent]
    assert m.get(absent) is None


def test_overflow_makes_metric_missing():
    @metric("s")
    def squared(m):
        """Of a damaged store."""
        return 1e300**2

    assert Metrics(None).get(squared) is None


def test_given_values_replace_computed_ones():
    assert Metrics(None, given={step.step_time_mean: 0.25})[step.step_time_mean] == 0.25


def test_a_metric_needs_a_docstring():
    with pytest.raises(TypeError, match="docstring"):

        @metric("1")
        def silent(m):
            return 1
