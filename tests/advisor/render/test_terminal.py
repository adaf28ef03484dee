"""The summary: plain where it is not a terminal, no wider than 80 columns, and never markup or escapes from outside."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from golden_report import empty, golden, hostile, tried
from rich.console import Console

from advisor.render.terminal import summarize
from advisor.report import Note


def summary(report, *, width=80, encoding="utf-8", terminal=False) -> str:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding, errors="backslashreplace")
    summarize(report, Path("runs/first"), Console(file=file, width=width, force_terminal=terminal, highlight=False))
    file.flush()
    return raw.getvalue().decode(encoding)


def test_it_says_where_a_step_goes_what_to_do_and_where_to_read_on():
    text = summary(golden())

    assert text.strip().startswith("A step takes 200 ms, 40% of it waiting for data.")
    assert "Waiting for data    80 ms   40%" in text
    assert "1. Use more DataLoader workers  [data-more-workers]" in text
    assert "\n   train.py:31  num_workers: 2 \u2192 5 " in text
    assert "Recording cost 0.4%" in text
    assert "Assumed, because not declared: throughput counts most" in text
    assert text.rstrip().endswith("Report: runs/first/report.html")


@pytest.mark.parametrize("width", [80, 40])
def test_no_line_is_wider_than_the_terminal(width):
    lines = summary(golden(), width=width).splitlines()

    assert max(len(line.rstrip()) for line in lines) <= width


def test_a_file_gets_no_escape_sequences():
    assert "\x1b" not in summary(golden())


def test_an_ascii_terminal_gets_ascii():
    assert summary(golden(), encoding="ascii").isascii()


def test_it_says_what_falls_between_the_steps_and_what_the_plan_makes_of_one():
    text = " ".join(summary(golden()).split())

    assert "Between the steps, of the run: evaluation 4.1%." in text
    assert "A step: 200 ms now, 44.4 ms after the plan." in text


def test_it_tells_regions_costs_and_what_rules_need():
    text = " ".join(summary(golden()).split())

    assert "Named regions: loss 4.5 ms x 1,000, log 2.5 ms x 40." in text
    assert "5 to 15% less step time. 4 to 12% less cost. Pass fused=True" in text
    assert "1 of 6 rules could not be checked: 1 needs a GPU to train on. The report says what each needs." in text


def test_it_says_how_to_look_into_much_that_no_phase_holds():
    much = tuple(replace(p, seconds=0.1, share=0.5) if p.name == "other" else p for p in golden().phases)

    text = " ".join(summary(replace(golden(), phases=much)).split())
    assert "Everything else takes 50% of the step." in text
    assert 'with profiler.region("NAME")' in text


def test_of_many_regions_it_tells_the_longest():
    many = tuple(replace(golden().regions[0], name=f"part {i}") for i in range(7))

    text = " ".join(summary(replace(golden(), regions=many)).split())
    assert "part 4 4.5 ms x 1,000 and 2 more." in text
    assert "part 5" not in text


def test_it_says_what_was_tried():
    text = " ".join(summary(tried()).split())

    assert "Tried. Confirmed: 37% less step time measured (31 to 43%), 33 to 40% predicted. 3 runs" in text


def test_it_tells_the_problems_that_matter():
    driver = Note(source="nvml", message="This machine has no NVIDIA driver, so no GPU was measured.")

    text = " ".join(summary(replace(golden(), problems=(driver, *golden().problems))).split())

    assert "! nvml: Power could not be read" in text
    assert "no NVIDIA driver" not in text


def test_an_empty_run_is_told_without_counting_rules():
    text = " ".join(summary(empty()).split())

    assert "No training step was seen before the run was killed" in text
    assert "must call profiler.step()" in text
    assert "could not be checked" not in text


def test_markup_from_outside_is_text():
    assert "[bold red]x[/bold red]" in summary(hostile("[bold red]x[/bold red]"))


@pytest.mark.parametrize("terminal", [True, False])
def test_escape_sequences_from_outside_do_nothing(terminal):
    text = summary(hostile("\x1b]0;owned\x07\x1b[2J\r"), terminal=terminal)

    assert "\x1b]" not in text
    assert "\x1b[2J" not in text
    assert "\x07" not in text
