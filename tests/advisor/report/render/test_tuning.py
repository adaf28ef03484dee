"""The story of a tuning in all its forms, and the progress of trials."""

from __future__ import annotations

import io
import json
import sys
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from rich.console import Console
from snapshots import same, scenes

from advisor.judging.judge import Estimate, Finding
from advisor.judging.verdict import Verdict
from advisor.report.render import tuning
from advisor.report.render.trial_progress import TrialProgress
from advisor.report.render.tuning import as_json
from advisor.rules import all_rules
from advisor.rules.base import Advice, Change, Evidence, Intervention, Safety, Severity
from advisor.verify import tuned
from advisor.verify.fitting import Ending, Fitted
from advisor.verify.kept import Verified
from advisor.verify.pace import Pace
from advisor.verify.trials import TrialChoices, Trials
from advisor.verify.tuning import NOTE, KeptChange, Tuned, claim, note
from profiler.errors import ProfilerError
from profiler.trial import Program

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

RULE = next(rule for rule in all_rules() if rule.id == "data-workers-zero")
CHANGE = Intervention(
    name="loader", settings={"file": 'a "b"\\\x7f\n\U0001f600.py', "num_workers": 4, "pin": None}, safety=Safety.EXACT
)
UNSET = Intervention(
    name="environment",
    settings={"variables": {"CUDA_LAUNCH_BLOCKING": None, "TORCH_DISTRIBUTED_DEBUG": "OFF"}},
    safety=Safety.EXACT,
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
    alone=Estimate(0.4, 0.5, 0.6),
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
    kept=(
        KeptChange(FINDING, BETTER),
        KeptChange(replace(FINDING, advice=replace(FINDING.advice, intervention=UNSET)), BETTER),
    ),
    given_up=(HARMFUL,),
    by_hand=(FINDING,),
    profile=Path("profile-2"),
)


def test_snapshot_of_tunings(said):
    texts = {}
    for name, made in {"two changes kept": TUNED, "nothing kept": replace(TUNED, kept=())}.items():
        texts[name] = "\n".join(tuning.story(made))
        texts[f"{name}, as a document"] = tuning.markdown(made, "train.py `a`")
    texts["while it goes on"] = said(terminal=False)
    same("tuning.txt", scenes(texts))


def test_tuning_is_written_as_valid_toml():
    read = tomllib.loads(tuning.toml(TUNED))

    assert (read["step_time_before"], read["step_time_after"]) == (0.1, 0.031)
    loader, environment = read["change"]
    assert loader["removed"] == [0.65, 0.7, 0.75]
    assert loader["settings"]["num_workers"] == 4
    assert loader["settings"]["file"].startswith('a "b"')
    assert environment["settings"] == {"variables": {"CUDA_LAUNCH_BLOCKING": "", "TORCH_DISTRIBUTED_DEBUG": "OFF"}}


def test_written_tuning_is_read_back(tmp_path):
    (tmp_path / "tuned.toml").write_text(tuning.toml(TUNED))
    loader, environment = tuned.read(tmp_path / "tuned.toml")

    assert (loader["name"], loader["settings"]["num_workers"]) == ("loader", 4)
    assert environment["settings"] == UNSET.settings


@pytest.fixture
def said():
    """Print the progress of trials, to a file or a terminal."""

    def printed(terminal):
        file = io.StringIO()
        console = Console(file=file, force_terminal=terminal, width=200, highlight=False)
        program, how = Program(words=("t.py",), cwd="/"), TrialChoices(allowed=(), processes=2)
        trials = Trials(program=program, how=how, pace=Pace(0.1, 0.02), folder=Path())
        with TrialProgress(console) as progress:
            progress.profiling(1, ())
            progress.trying(trials, FINDING)
            progress.running("without", 0, 4)
            progress.running("with the change", 1, 4)
            progress.tried(FINDING, replace(BETTER, why="[bold]\x1b[2J"))
            progress.profiling(2, [RULE.id])
        return file.getvalue()

    return printed


def test_a_file_gets_no_escape_sequences(said):
    text = said(terminal=False)

    assert "\x1b" not in text
    assert "[bold]" in text


def test_terminal_gets_same_lines_as_file(said):
    text = said(terminal=True)

    for line in ("Profile 1: the program as it is", "70% less step time measured", "Profile 2:"):
        assert line in text
    assert "\x1b[2J" not in text
    assert "run 1 of 4" not in text


# ---- tuning.json ----

SCHEMA = json.loads((Path(__file__).parents[4] / "docs" / "tuning.schema.json").read_text())
PROGRAM = Program(words=("train.py",), cwd="/w")
FITTED = Fitted(
    before=Ending(fits=False, steps=3, of_memory=True, why="It ran out of memory."),
    kept=(),
    after=None,
    tried=(),
    left_out=("Nothing.",),
    profile=Path("as-it-is"),
)


@pytest.mark.parametrize("tuned", [TUNED, FITTED], ids=["tuned", "fitted"])
def test_the_result_keeps_its_schema(tuned, tmp_path):
    claim(tmp_path / "tuning", PROGRAM)
    jsonschema.validate(json.loads((tmp_path / "tuning" / NOTE).read_text()), SCHEMA)

    (tmp_path / "tuning" / NOTE).write_text(as_json(note(PROGRAM), tuned))

    found = json.loads((tmp_path / "tuning" / NOTE).read_text())
    jsonschema.validate(found, SCHEMA)
    assert len(found["result"]["kept"]) == len(tuned.kept)
    claim(tmp_path / "tuning", PROGRAM)
    with pytest.raises(ProfilerError):
        claim(tmp_path / "tuning", Program(words=("other.py",), cwd="/w"))


def test_result_includes_times_trials_and_manual_changes():
    found = json.loads(as_json(note(PROGRAM), TUNED))["result"]

    assert (found["before"]["step_time_s"], found["after"]["step_time_s"]) == (TUNED.before, TUNED.after)
    assert [each["verified"]["verdict"] for each in found["not_kept"]] == ["harmful"]
    assert found["by_hand"] == ["data-workers-zero"]
