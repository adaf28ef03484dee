"""The summary: plain text outside a terminal, at most 80 columns wide, and never markup or escapes from outside."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from golden_report import altered, empty, golden, hostile, tried
from rich.console import Console
from snapshots import same, scenes
from stack_places import NORMALIZE

from advisor.judging.judge import WINDOW_TOO_SHORT, Estimate
from advisor.metrics.host import CoreUse
from advisor.metrics.step import typical_step_uncertainty
from advisor.report.render import view
from advisor.report.render.terminal import summarize
from advisor.report.report import Note, Phase
from advisor.rules.base import Change, Measurement, Severity
from profiler.schema import NO_DRIVER


def summary(report, *, width=80, encoding="utf-8", terminal=False) -> str:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding, errors="backslashreplace")
    summarize(report, Path("runs/first"), Console(file=file, width=width, force_terminal=terminal, highlight=False))
    file.flush()
    return raw.getvalue().decode(encoding)


def test_snapshot_of_summaries():
    reports = {"golden": golden(), "tried": tried(), "killed before it trained": empty()}
    same("summaries.txt", scenes({name: summary(report) for name, report in reports.items()}))


@pytest.mark.parametrize("width", [80, 40])
def test_no_line_is_wider_than_the_terminal(width):
    lines = summary(golden(), width=width).splitlines()

    assert max(len(line.rstrip()) for line in lines) <= width


def test_a_file_gets_no_escape_sequences():
    assert "\x1b" not in summary(golden())


def test_file_has_no_trailing_spaces_or_negligible_rows():
    first, *others = golden().phases
    few = replace(golden(), phases=(replace(first, share=0.0009, seconds=1e-6), *others))

    assert not any(line.endswith(" ") for line in summary(few).splitlines())
    assert f"  {first.label}" in summary(golden())
    assert f"  {first.label}" not in summary(few)


def test_an_ascii_terminal_gets_ascii():
    assert summary(golden(), encoding="ascii").isascii()


def test_busy_machine_is_reported_first():
    assert summary(replace(golden(), cores=CoreUse(2, 1.8, 0.2))).strip().startswith("Other programs")
    assert "Other programs" not in summary(replace(golden(), cores=CoreUse(2, 1.0, 0.2)))
    assert "Other programs" not in summary(replace(golden(), cores=CoreUse(64, 4.0, 60.0)))


def test_says_how_to_break_down_large_other_phase():
    much = tuple(replace(p, seconds=0.1, share=0.5) if p.name == "other" else p for p in golden().phases)

    text = " ".join(summary(replace(golden(), phases=much)).split())
    assert " 50% of" in text
    assert 'with region("NAME"):' in text


def test_a_path_is_never_broken():
    first, *others = golden().advice
    path = "/home/me/" + "project/" * 9 + "train.py"
    (change, *_) = first.finding.advice.changes
    advice = (altered(first, changes=(replace(change, file=path, line=31),)), *others)
    assert f"   {path}:31\n" in summary(replace(golden(), advice=advice))


def test_noise_explained_by_busy_machine_is_reported_once():
    first, *others = golden().advice
    uncertain = Measurement(typical_step_uncertainty, 0.1, 0.05)
    short = altered(first, rule=WINDOW_TOO_SHORT, severity=Severity.INFO, evidence=(uncertain,))
    report = replace(golden(), advice=(*others, short))
    assert WINDOW_TOO_SHORT in summary(report)
    assert WINDOW_TOO_SHORT not in summary(replace(report, cores=CoreUse(2, 1.8, 0.2)))


def test_only_longest_regions_are_listed():
    many = tuple(replace(golden().regions[0], name=f"part {i}") for i in range(7))

    text = " ".join(summary(replace(golden(), regions=many)).split())
    assert "part 4 4.5 ms x 1,000 and 2 more." in text
    assert "part 5" not in text


def test_only_problems_that_matter_are_listed():
    driver = Note(source="nvml", message="This machine has no NVIDIA driver, so no GPU was measured.", code=NO_DRIVER)

    text = " ".join(summary(replace(golden(), problems=(driver, *golden().problems))).split())

    assert "! nvml: Power" in text
    assert "driver" not in text


def test_store_damage_is_shown_before_other_problems():
    others = tuple(Note(source=f"hook{number}", message="gave up") for number in range(5))
    damage = Note(source="store", message="run.db is damaged", code="damaged")
    text = summary(replace(golden(), problems=(*others, damage)))
    assert "run.db is damaged" in text
    assert "hook4" not in text


def test_each_note_has_a_line_of_its_own():
    lines = summary(golden(), width=200).splitlines()
    notes = (view.regions_text(golden()), view.between_text(golden()))
    assert [line.strip() for line in lines if line.strip() in notes] == [*notes]


@pytest.mark.parametrize(("alone", "has_it_alone"), [(Estimate(0.1, 0.2, 0.3), True), (Estimate(0.0, 0.0, 0.0), False)])
def test_advice_without_gain_refers_to_step_time_and_earlier_advice(alone, has_it_alone):
    nothing = altered(golden().advice[0], alone=alone, in_plan=Estimate(0.0, 0.0, 0.0), cost=None)
    (said,) = view.gains(nothing)
    assert said == view.gain(nothing)
    assert "step time" in said
    assert ("above" in said) is has_it_alone


def test_untrusted_markup_is_printed_as_text():
    assert "[bold red]x[/bold red]" in summary(hostile("[bold red]x[/bold red]"))


@pytest.mark.parametrize("terminal", [True, False])
def test_untrusted_escape_sequences_are_removed(terminal):
    text = summary(hostile("\x1b]0;owned\x07\x1b[2J\r"), terminal=terminal)

    assert "\x1b]" not in text
    assert "\x1b[2J" not in text
    assert "\x07" not in text


def test_notebook_is_named_as_such_and_cells_have_lines():
    report = replace(
        golden(), run=replace(golden().run, command=("python", "/x/ipykernel_launcher.py", "-f", "k.json"))
    )
    cell = Change(language="python", code="x", file="notebook cell 2", line=9)

    assert "ipykernel" not in view.command(report)
    assert view.place(report, cell) == "notebook cell 2, line 9"
    of_stacks = replace(NORMALIZE, file="/tmp/ipykernel_28895/2516830660.py", line=9)
    assert view.place(report, of_stacks) == view.place(report, replace(cell, file="notebook cell"))
    assert "ipykernel" not in of_stacks.where


def test_phase_measured_only_by_windows_is_not_called_unmeasured():
    phases = (Phase(name="other", seconds=0.1, share=1.0), Phase(name="h2d"), Phase(name="gc"))
    of_windows = next(one for one in golden().quantities if one.value is not None)
    report = replace(golden(), phases=phases, quantities=(replace(of_windows, name="h2d_fraction", value=0.18),))
    assert len(view.windowed(report)) == len(view.unmeasured(report)) == 1
    assert "18%" in view.windowed(report)[0]
    assert len(view.unmeasured(replace(report, quantities=()))) == 2
