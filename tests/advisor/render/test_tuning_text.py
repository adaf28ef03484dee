"""The story of a tuning in all its forms, and trials as they go on."""

from __future__ import annotations

import io
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from advisor.judge import Finding, Gain
from advisor.render import tuning_text
from advisor.render.trial_progress import TrialProgress
from advisor.rules import all_rules
from advisor.rules.base import Advice, Change, Evidence, Intervention, Safety, Severity
from advisor.verify import tuned
from advisor.verify.kept import Verified
from advisor.verify.pace import Pace
from advisor.verify.process import Program
from advisor.verify.trials import Trials
from advisor.verify.tuning import Kept, Tuned
from advisor.verify.verdict import Verdict

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

RULE = next(rule for rule in all_rules() if rule.id == "data-workers-zero")
CHANGE = Intervention(
    name="loader", settings={"file": 'a "b"\\\x7f\n\U0001f600.py', "num_workers": 4, "pin": None}, safety=Safety.EXACT
)
UNSET = Intervention(
    name="environment", settings={"variables": {"CUDA_LAUNCH_BLOCKING": None, "A": "1"}}, safety=Safety.EXACT
)
FINDING = Finding(
    rule=RULE,
    severity=Severity.ACTION,
    evidence=Evidence(()),
    advice=Advice(
        then="Give it *workers*.",
        changes=(Change(language="python", code="DataLoader(num_workers=4)", file="train.py", line=7),),
        basis="",
        risk="",
        intervention=CHANGE,
    ),
    alone=Gain(0.4, 0.5, 0.6),
    in_plan=None,
    score=1.0,
)
BETTER = Verified(
    rule=RULE.id,
    verdict=Verdict.BETTER,
    predicted=(0.4, 0.5, 0.6),
    removed=(0.65, 0.7, 0.75),
    seconds=(0.1, 0.03),
    steps=120,
    processes=3,
)
HARMFUL = replace(
    BETTER, rule="compile-model", verdict=Verdict.HARMFUL, removed=(-0.2, -0.1, -0.05), why="A step takes longer."
)
TUNED = Tuned(
    before=0.1,
    after=0.031,
    kept=(Kept(FINDING, CHANGE, BETTER), Kept(FINDING, UNSET, BETTER)),
    given_up=(HARMFUL,),
    by_hand=(FINDING,),
    profile=Path("profile-2"),
)


def test_the_story_goes_from_first_to_last():
    lines = tuning_text.story(TUNED)

    assert lines[0].split() == ["as", "it", "is", "100", "ms", "#" * 30]
    assert lines[1].split() == [RULE.id, "30", "ms", "#" * 9]
    assert lines[2].strip().startswith("Better than predicted: 70% less step time measured (65 to 75%)")
    assert lines[5].split()[-3:] == ["31", "ms", "#" * 9]
    assert lines[6].strip().startswith("not kept: compile-model. Harmful here: 10% more")
    assert lines[7].strip() == f"left to you: {RULE.title} [{RULE.id}]"


def test_where_nothing_was_kept_it_says_so():
    assert "nothing was kept" in tuning_text.story(replace(TUNED, kept=()))[1]
    assert "To apply" not in tuning_text.markdown(replace(TUNED, kept=()), "train.py")


def test_the_changes_can_be_copied():
    text = tuning_text.markdown(TUNED, "train.py `a`")

    assert text.startswith("# Tuning of `` train.py `a` ``\n")
    assert "Give it \\*workers\\*." in text
    assert "`train.py:7`\n\n```python\nDataLoader(num_workers=4)\n```" in text


def test_whoever_applies_it_reads_toml():
    read = tomllib.loads(tuning_text.toml(TUNED))

    assert (read["step_time_before"], read["step_time_after"]) == (0.1, 0.031)
    loader, environment = read["change"]
    assert loader["removed"] == [0.65, 0.7, 0.75]
    assert loader["settings"]["num_workers"] == 4
    assert loader["settings"]["file"].startswith('a "b"')
    assert environment["settings"] == {"variables": {"CUDA_LAUNCH_BLOCKING": "", "A": "1"}}


def test_what_is_written_is_what_is_made(tmp_path):
    (tmp_path / "tuned.toml").write_text(tuning_text.toml(TUNED))
    loader, environment = tuned.read(tmp_path / "tuned.toml")

    assert (loader["name"], loader["settings"]["num_workers"]) == ("loader", 4)
    assert environment["settings"] == UNSET.settings


@pytest.fixture
def said():
    """What is printed as trials go on, to a file or a terminal."""

    def printed(terminal):
        file = io.StringIO()
        console = Console(file=file, force_terminal=terminal, width=200, highlight=False)
        trials = Trials(program=Program(words=("t.py",), cwd="/"), pace=Pace(0.1, 0.02), folder=Path(), processes=2)
        with TrialProgress(console) as progress:
            progress.profiling(1, ())
            progress.trying(trials, FINDING)
            progress.running("without", 0, 4)
            progress.running("with the change", 1, 4)
            progress.tried(FINDING, replace(BETTER, why="[bold]\x1b[2J"))
            progress.profiling(2, TUNED.kept[:1])
        return file.getvalue()

    return printed


def test_a_file_gets_a_line_for_each_event(said):
    text = said(terminal=False)

    assert text.splitlines()[:4] == [
        "Profile 1: the program as it is",
        f"{RULE.id}: 40 to 60% less step time predicted; 4 runs of 55 steps, about 20.5 s",
        "  run 1 of 4: without",
        "  run 2 of 4: with the change",
    ]
    assert f"{RULE.id}: Better than predicted: 70% less" in text
    assert text.splitlines()[-1] == f"Profile 2: with {RULE.id}"
    assert "\x1b" not in text
    assert "[bold]" in text


def test_a_terminal_gets_the_same_lines_and_a_bar(said):
    text = said(terminal=True)

    for line in ("Profile 1: the program as it is", "70% less step time measured", "Profile 2:"):
        assert line in text
    assert "\x1b[2J" not in text
    assert "run 1 of 4" not in text
