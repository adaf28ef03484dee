"""Goals, configuration and the user's own rules, given on the command line."""

import json
import os
import sys
from pathlib import Path

import pytest

from advisor.cli import main
from advisor.cli.options import Criteria
from advisor.judging.calibration_file import read as read_calibration
from profiler.schema import Process, Run, Step
from profiler.store import Writer

RULE = '''"""Steps are seen.

For a test.
"""

from advisor.metrics.step import step_time_mean
from advisor.rules.base import Advice, Change, Confidence, Evidence, Measurement, Rule, Area


def when(m):
    """If there are steps,"""
    return Evidence((Measurement(step_time_mean, m[step_time_mean]),))


def then(m, found):
    """then look."""
    return Advice(then="Look.", changes=(Change(language="text", code="look"),), basis="None.", risk="None.")


RULE = Rule(
    title="Look", area=Area.MODEL, confidence=Confidence.HEURISTIC, difficulty=1, sources=()
)
'''


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """Enter an empty folder that is not inside any project."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def recorded(here):
    """Write a run of 50 steps."""
    folder = here / "run"
    folder.mkdir()
    writer = Writer(folder, "h")
    about = {"cores": 2.0, "cores_total": 2, "memory_total": 2**30, "platform": "Linux", "python": "3.11"}
    writer.add(Run(id="r", command=("train.py",), cwd="/", host="h", started_at=1.7e9, version="0.1.0", **about))
    writer.add(Process(pid=1, started=0.5))
    writer.add(*[Step(pid=1, index=i, start=1 + i / 10, duration=0.1, forward=0.1) for i in range(50)])
    writer.close()
    return folder


@pytest.fixture
def result(recorded, capsys):
    def report(*words):
        assert main(["report", str(recorded), "--json", *words]) == 0
        return json.loads(capsys.readouterr().out)

    return report


def limits(result, rule="window-too-short"):
    return next(verdict["limits"] for verdict in result["verdicts"] if verdict["rule"] == rule)


def outcome(result, rule):
    return next((verdict["outcome"] for verdict in result["verdicts"] if verdict["rule"] == rule), None)


def test_verdicts_include_limits_in_force(here, result):
    (here / "mine.toml").write_text("[rules.window-too-short]\nmin_steps = 60")

    assert limits(result())["min_steps"] == 30
    configured = result("--config", "mine.toml")
    assert limits(configured)["min_steps"] == 60
    assert outcome(configured, "window-too-short") == "fired", "for the limit is not only shown"


def test_nearest_pyproject_applies_unless_config_is_given(here, result, monkeypatch):
    (here / "pyproject.toml").write_text("[tool.profile-train.rules.window-too-short]\nmin_steps = 41")
    (here / "mine.toml").write_text("[rules.window-too-short]\nmin_steps = 42")
    (here / "inner").mkdir()
    monkeypatch.chdir(here / "inner")
    assert limits(result())["min_steps"] == 41
    assert limits(result("--config", "../mine.toml"))["min_steps"] == 42

    (here / "inner" / "pyproject.toml").write_text("[project]\nname = 'inner'")
    assert limits(result())["min_steps"] == 30, "the nearest project has nothing to say"


def test_config_in_run_folder_is_ignored(recorded, result, monkeypatch):
    (recorded / "pyproject.toml").write_text("[tool.profile-train]\nrules_path = 'evil.py'")
    (recorded / "evil.py").write_text("raise SystemExit('ran')")

    assert result()["environment"]["problems"] == []
    monkeypatch.chdir(recorded)
    assert result()["environment"]["problems"] == []


MARKS = "from pathlib import Path\n\nPath('ran').touch()\n"


@pytest.fixture
def repository(here, monkeypatch):
    """Enter a folder in a repository whose pyproject.toml names rules; when their code runs, it leaves a mark."""
    (here / "pyproject.toml").write_text(
        "[tool.profile-train]\nrules_path = 'mine'\n[tool.profile-train.goals]\ngpu_price = 7"
    )
    (here / "mine").mkdir()
    (here / "mine" / "seen_steps.py").write_text(RULE + MARKS)
    (here / "inner").mkdir()
    monkeypatch.chdir(here / "inner")
    return here


def other_than(monkeypatch, path):
    """Make `path` seem to belong to another user; the tests may run as any user."""
    real, inode = Path.stat, path.stat().st_ino

    def stat(self, **how):
        found = real(self, **how)
        return os.stat_result((*found[:4], 12345, *found[5:10])) if found.st_ino == inode else found

    monkeypatch.setattr(Path, "stat", stat)


@pytest.mark.parametrize("what", ["pyproject.toml", ".", "mine/seen_steps.py", "mine"])
def test_config_and_rules_of_another_user_are_ignored(repository, result, monkeypatch, what):
    other_than(monkeypatch, repository / what)
    judged = result()
    assert outcome(judged, "seen-steps") is None
    assert not Path("ran").exists()
    assert not judged["goals"]["declared"]


@pytest.mark.parametrize(
    ("what", "mode", "rules"),
    [
        ("pyproject.toml", 0o666, False),
        (".", 0o777, False),
        (".", 0o1777, True),
        (".", 0o755, True),
        ("mine", 0o777, False),
        ("mine/seen_steps.py", 0o666, False),
        ("mine/seen_steps.py", 0o664, False),
        ("mine", 0o2775, False),
        ("pyproject.toml", 0o664, True),
    ],
)
def test_rules_writable_by_others_are_not_run(repository, result, monkeypatch, what, mode, rules):
    monkeypatch.setattr("advisor.settings.trust._is_our_own", lambda group: False)
    (repository / what).chmod(mode)
    assert (outcome(result(), "seen-steps") is not None) == Path("ran").exists() == rules


def test_explicitly_named_rules_and_config_are_used(repository, result, monkeypatch):
    other_than(monkeypatch, repository / "mine")
    assert outcome(result("--rules", "../mine"), "seen-steps") is not None
    assert outcome(result("--config", "../pyproject.toml"), "seen-steps") is not None


def test_config_search_ends_at_repository_root(repository, result):
    (repository / "inner" / ".git").mkdir()
    assert outcome(result(), "seen-steps") is None


@pytest.mark.parametrize("words", [["plan", "--params", "1B"], ["export", "RUN", "--to", "prometheus"]])
def test_commands_that_do_not_judge_run_no_rules(repository, recorded, capsys, words):
    main([str(recorded) if word == "RUN" else word for word in words])
    assert not Path("ran").exists()


def test_own_rules_judge_and_broken_ones_are_reported(here, result):
    (here / "mine").mkdir()
    (here / "mine" / "seen_steps.py").write_text(RULE)
    (here / "mine" / "torn.py").write_text("def")

    judged = result("--rules", "mine")
    assert outcome(judged, "seen-steps") == "fired"
    (problem,) = judged["environment"]["problems"]
    assert problem["source"] == "rules"
    assert "torn" in problem["message"]
    assert outcome(result(), "seen-steps") is None


def test_goals_are_declared_and_the_rest_assumed(result):
    quality, failing = ["--quality", "val_acc>=0.76"], ["--mtbf", "2h", "--restart", "5m", "--spot-discount", "65%"]
    goals = result("--goal", "cost", "--target-batch", "64", *quality, *failing)["goals"]
    assert goals == {
        "declared": {
            "goal": "cost",
            "target_batch": 64,
            "quality": {"metric": "val_acc", "relation": ">=", "value": 0.76},
            "mtbf": 7200,
            "restart": 300,
            "spot_discount": 0.65,
        },
        "assumed": "",
    }
    assert "throughput" not in result("--goal", "memory")["goals"]["assumed"]
    assert "throughput" in result()["goals"]["assumed"]


def test_validations_are_read_when_the_report_is_made(here, result):
    (here / "metrics.csv").write_text("epoch,acc\n1,0.5\n2,0.6\n")

    assert result("--validation", "metrics.csv:acc")["goals"]["declared"] == {"validation": [0.5, 0.6]}


@pytest.mark.parametrize("command", ["run", "report", "verify", "tune"])
def test_goal_options_have_own_help_section(capsys, command):
    assert main([command, "--help-all"]) == 0

    options, goals = capsys.readouterr().out.split("\nGoals:\n")
    assert "--config" in options
    assert "--quality" in goals
    assert "--quality" not in options


@pytest.mark.parametrize("command", ["run", "verify", "tune"])
def test_trial_options_have_own_help_section(capsys, command):
    assert main([command, "--help-all"]) == 0

    options, rest = capsys.readouterr().out.split("\nTrials:\n")
    trials = rest.split("\n\n")[0]
    assert "--yes" in trials
    assert "--yes" not in options
    assert "--calibration" not in trials


def test_short_help_names_other_sections(capsys):
    assert main(["run", "--help"]) == 0

    assert "Trials, Configuration, Goals." in capsys.readouterr().out


def test_unknown_kind_of_change_is_usage_error(recorded):
    assert main(["verify", str(recorded), "--allow", "numeric", "--allow", "memory"]) == 2


TRIED = {
    "schema": "profile-train/calibration@1",
    "case": "a",
    "rule": "goal-undefined",
    "verdict": "partial",
    "predicted": [0.1, 0.2, 0.3],
    "removed": [0.12, 0.14, 0.16],
}


def story(file):
    """Return what a report says of the trials in this file."""
    said = read_calibration(file)[0].story("goal-undefined")
    assert said
    return said


def past(result):
    return next(advice["past"] for advice in result["advice"] if advice["rule"] == "goal-undefined")


def test_calibration_file_is_the_given_one_or_the_default(here, result, monkeypatch):
    mine = here / "data" / "profile-train" / "calibration.jsonl"
    mine.parent.mkdir(parents=True)
    mine.write_text(json.dumps(TRIED) + "\n")
    named = here / "named.jsonl"
    named.write_text("".join(json.dumps({**TRIED, "case": case}) + "\n" for case in "abc"))
    monkeypatch.setenv("XDG_DATA_HOME", str(here / "data"))
    monkeypatch.delenv("PROFILE_TRAIN_CALIBRATION")
    assert past(result()) == story(mine)

    monkeypatch.setenv("PROFILE_TRAIN_CALIBRATION", str(named))
    assert past(result()) == story(named) != story(mine)
    assert past(result("--calibration", str(mine))) == story(mine)
    assert past(result("--calibration", "missing.jsonl")) == ""


def test_unreadable_calibration_lines_are_reported_and_kept(here, recorded, capsys):
    file = here / "mine.jsonl"
    file.write_text("{\n" + json.dumps(TRIED) + "\n")

    assert main(["report", str(recorded), "--json", "--calibration", str(file)]) == 0
    captured = capsys.readouterr()
    assert f"Line 1 of {file}" in captured.err
    assert past(json.loads(captured.out)) == story(file)
    assert main(["explain", "goal-undefined", "--calibration", str(file)]) == 0
    assert story(file) in " ".join(capsys.readouterr().out.split())
    assert file.read_text().startswith("{\n")


def test_unreadable_default_calibration_file_does_not_fail_command(here, recorded, monkeypatch):
    mine = here / "profile-train" / "calibration.jsonl"
    mine.parent.mkdir()
    mine.write_text(json.dumps(TRIED) + "\n")
    monkeypatch.setenv("XDG_DATA_HOME", str(here))
    monkeypatch.delenv("PROFILE_TRAIN_CALIBRATION")
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != mine)  # as for users other than root

    assert main(["report", str(recorded), "--json"]) == 0


def test_config_mistake_is_reported_before_program_starts(here, capsys):
    (here / "mine.toml").write_text("[goals]\ngpu_prise = 2")

    program = [sys.executable, "-c", "open('ran', 'w')"]
    assert main(["run", "--config", "mine.toml", *program]) == 1
    assert "gpu_price" in capsys.readouterr().err
    assert not (here / "ran").exists()


def test_missing_validation_file_does_not_prevent_report(capsys):
    criteria = Criteria(None, {"goal": "cost", "validation": "missing.txt"}, None)

    assert criteria.lenient_goals().goal == "cost"
    assert "missing.txt" in capsys.readouterr().err


def test_rules_and_explain_know_the_configuration(here, capsys):
    (here / "seen_steps.py").write_text(RULE)
    (here / "mine.toml").write_text(
        "rules_path = 'seen_steps.py'\n[rules.host-logging]\nenabled = false\nbudget = 0.02"
    )

    assert main(["rules", "--config", "mine.toml"]) == 0
    listed = capsys.readouterr().out
    assert "  seen-steps " in listed
    assert listed.count("(switched off)") == 1
    assert main(["explain", "seen-steps", "--config", "mine.toml"]) == 0
    assert capsys.readouterr().out.startswith("seen-steps: Look")
    assert main(["explain", "host-logging", "--config", "mine.toml"]) == 0
    assert "budget = 0.01, here 0.02" in " ".join(capsys.readouterr().out.split())


def test_plan_takes_goals_from_the_configuration(here, capsys):
    (here / "mine.toml").write_text('[goals]\ntarget_batch = 512\nmtbf = "2h"\nspot_discount = "65%"')
    memory = ["plan", "--params", "1.5B", "--gpus", "8", "--gpu", "A100-80GB", "--config", "mine.toml"]

    def planned(*words):
        assert main([*memory, "--format", "json", *words]) == 0
        return json.loads(capsys.readouterr().out)

    assert planned("--micro-batch", "4")["memory"]["accumulation"]["target_batch"] == 512
    assert planned("--micro-batch", "4", "--target-batch", "64")["memory"]["accumulation"]["target_batch"] == 64
    assert planned()["checkpoint_interval"] is None, "it was not requested"
    assert planned("--save-cost", "20s")["checkpoint_interval"] is not None
