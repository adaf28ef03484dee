"""The result of a trial, in words."""

import io
from dataclasses import replace
from pathlib import Path

import pytest
from golden_report import tried
from rich.console import Console

from advisor.judging.verdict import Verdict
from advisor.report.render import html, markdown
from advisor.report.render.terminal import summarize
from advisor.report.render.tried import change, details, outcome, scale
from advisor.verify.kept import Verified

TRIED = Verified(rule="a", verdict=Verdict.INCONCLUSIVE, predicted=(-0.1, 0.2, 0.5), removed=(-0.02, 0.04, 0.09))


@pytest.mark.parametrize(
    ("removed", "text"),
    [
        ((0.51, 0.56, 0.61), "51 to 61% less"),
        ((-0.05, -0.04, -0.03), "3 to 5% more"),
        ((-0.02, 0.04, 0.09), "2% more to 9% less"),
        ((0.0, 0.1, 0.2), "0 to 20% less"),
    ],
)
def test_an_interval_says_its_direction(removed, text):
    assert change(removed) == text


def in_terminal(report):
    file = io.StringIO()
    summarize(report, Path("run"), Console(file=file, width=120))
    return file.getvalue()


@pytest.mark.parametrize("shown", [html.render, markdown.render, in_terminal])
def test_harmful_advice_promises_nothing(shown):
    _, harmful, _ = tried().advice
    promises = ("48 to 64%", "58.8 of every 100 GPU-hours", "frees about 8 GiB")

    text = shown(replace(tried(), advice=(harmful,)))
    assert "Harmful here" in text
    assert not any(promise in text for promise in promises)
    assert promises[0] in shown(replace(tried(), advice=(replace(harmful, verified=None),)))


def test_direction_is_stated_once_unless_it_changes():
    assert "(2% more to 9% less), 10% more to 50% less" in outcome(TRIED)


def test_details_omit_unknown_values():
    assert details(TRIED).count(".") == 1


def test_bands_share_a_scale_with_zero():
    """The scale goes from -10 % to 50 %."""
    at = scale(TRIED)

    assert at(0.0) == pytest.approx(100 / 6, abs=0.01)
    assert list(map(at, TRIED.predicted)) == pytest.approx([0, 50, 100], abs=0.02)
    low, _, high = map(at, TRIED.removed)
    assert (low, high - low) == pytest.approx((100 * 0.08 / 0.6, 100 * 0.11 / 0.6), abs=0.02)
