"""Advice that is only information because it is uncertain says so, wherever it is shown."""

import io
from dataclasses import replace
from pathlib import Path

import pytest
from golden_report import altered, golden
from rich.console import Console

from advisor.report.render import html, markdown, result_json
from advisor.report.render.terminal import summarize
from advisor.rules.base import Severity

WHY = "The step time scatters."


def in_terminal(report):
    file = io.StringIO()
    summarize(report, Path("run"), Console(file=file, width=120))
    return file.getvalue()


@pytest.mark.parametrize("shown", [html.render, markdown.render, in_terminal])
def test_reason_is_shown_only_for_held_back_advice(shown):
    report = golden()
    held = replace(
        report, advice=(altered(report.advice[0], severity=Severity.INFO, held_back=WHY), *report.advice[1:])
    )

    assert WHY in shown(held)
    assert "nly information" not in shown(report)


def test_reason_is_in_result_json():
    report = golden()
    held = replace(report, advice=(altered(report.advice[0], held_back=WHY),))

    assert result_json.result(held)["advice"][0]["held_back"] == WHY
