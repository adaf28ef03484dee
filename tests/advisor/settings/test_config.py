"""The configuration file: what it sets, and that whatever is wrong in it is refused by name."""

from pathlib import Path

import pytest

from advisor.metrics.base import Quality
from advisor.rules.base import Rule, Severity
from advisor.settings.config import configure
from profiler.errors import ProfilerError


def written(folder: Path, text: str, name: str = "here.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def rules(path: Path | None) -> dict[str, Rule]:
    return {rule.id: rule for rule in configure(path).rules.rules}


def test_without_a_file_all_is_as_the_rules_say():
    assert configure().goals == {}
    zero = rules(None)["data-workers-zero"]
    assert (zero.limits, zero.off, zero.in_force["min_wait"]) == ({}, "", 0.05)


def test_a_limit_holds_for_the_rule_it_is_set_for_alone(tmp_path):
    found = rules(written(tmp_path, "[rules.precision-bf16]\nmin_share = 0.5"))

    assert found["precision-bf16"].in_force["min_share"] == 0.5
    assert found["precision-fp16-scaler"].in_force["min_share"] == 0.2, "shares the threshold, not the setting"


def test_a_rule_can_be_switched_off_and_says_by_what(tmp_path):
    off = rules(written(tmp_path, "[rules.channels-last]\nenabled = false\n[rules.host-logging]\nenabled = true"))

    assert off["channels-last"].off == f"[rules.channels-last] of {tmp_path / 'here.toml'}"
    assert off["host-logging"].off == ""


def test_opting_in_lifts_the_cap(tmp_path):
    assert rules(None)["precision-fp8"].cap is Severity.INFO
    assert rules(written(tmp_path, 'opt_in = ["precision-fp8"]'))["precision-fp8"].cap is Severity.ACTION


def test_goals_are_written_as_on_the_command_line_or_as_numbers(tmp_path):
    goals = configure(
        written(
            tmp_path,
            '[goals]\ngoal = "cost"\ngpu_price = 2.5\ntarget_batch = 512\ncapacity = true\nmtbf = "2h"\n'
            'restart = "5m"\nquality = "val_acc >= 0.76"\nspot_discount = "65%"\nqueue_share = 0.15\n'
            'validation = "val.txt"',
        )
    ).goals

    assert goals == {
        "goal": "cost",
        "gpu_price": 2.5,
        "target_batch": 512,
        "capacity": True,
        "quality": Quality("val_acc", ">=", 0.76),
        "mtbf": 7200,
        "restart": 300,
        "spot_discount": 0.65,
        "queue_share": 0.15,
        "validation": str(tmp_path / "val.txt"),
    }


def test_the_command_line_counts_more(tmp_path):
    config = configure(written(tmp_path, '[goals]\ngoal = "cost"\ngpu_price = 2.5'))

    assert config.declared({"goal": "memory", "gpu_price": None}) == {"goal": "memory", "gpu_price": 2.5}


def test_a_pyproject_has_a_table_for_us(tmp_path):
    text = '[project]\nname = "x"\n[tool.profile-train.rules.data-workers-zero]\nmin_wait = 0.08'

    assert rules(written(tmp_path, text, "pyproject.toml"))["data-workers-zero"].in_force["min_wait"] == 0.08


@pytest.mark.parametrize(
    ("text", "message", "meant"),
    [
        ("[goal]\nx = 1", "goal is not known", "Did you mean goals?"),
        ("[goals]\ngpu_prise = 2", "goals.gpu_prise is not known", "Did you mean gpu_price?"),
        ("[goals]\ngpu_price = true", "goals.gpu_price is true or false", ""),
        ('[goals]\ngpu_price = "cheap"', "goals.gpu_price is wrong: 'cheap' is not a price", "Write a number"),
        ("[goals]\nmtbf = 7200", "goals.mtbf is wrong: '7200' is not a time", '"2h"'),
        ("[goals]\nspot_discount = 65", "goals.spot_discount is wrong", "65%"),
        ('[goals]\ngoal = "speed"', "goals.goal is wrong: 'speed' is not a goal", "throughput, memory"),
        ('[goals]\nquality = "good"', "goals.quality is wrong", "val_acc>=0.76"),
        ("[goals]\ntarget_batch = 1.5", "goals.target_batch is wrong", "whole number"),
        ('[goals]\ncapacity = "yes"', "goals.capacity is a string, not true or false", "capacity = true"),
        ("[goals]\nvalidation = 3", "goals.validation is a number, not a string", ""),
        ("goals = 3", "goals is a number, not a table", "[goals]"),
        ("[rules.data-worker-zero]\nmin_wait = 1", "rules.data-worker-zero is not known", "data-workers-zero?"),
        ("[rules.data-workers-zero]\nmin_wiat = 1", "rules.data-workers-zero.min_wiat is not known", "min_wait?"),
        ("[rules.data-workers-zero]\nqq = 1", "rules.data-workers-zero.qq is not known", "explain data-workers-zero"),
        ('[rules.data-workers-zero]\nmin_wait = "5%"', "min_wait is a string, not a number", ""),
        ("[rules.data-workers-zero]\nmin_wait = true", "min_wait is true or false, not a number", ""),
        ("[rules.data-workers-zero]\nmin_wait = nan", "min_wait is not finite", ""),
        (f"[rules.data-workers-zero]\nmin_wait = 1{'0' * 400}", "min_wait is not finite", ""),
        ("[rules.data-workers-zero]\nenabled = 0", "enabled is a number, not true or false", ""),
        ("[rules]\ndata-workers-zero = 1", "rules.data-workers-zero is a number, not a table", ""),
        ('opt_in = ["precision-fp9"]', "opt_in names 'precision-fp9', which is not a rule", "Did you mean"),
        ('opt_in = "precision-fp8"', "opt_in is a string, not a list of strings", ""),
        ("rules_path = 3", "rules_path is a number, not a string", ""),
        ('rules_path = "nowhere"', "rules_path names 'nowhere', but there is no ", "relative to that file"),
        ("[rules]\nmin_wiat = 0.1", "rules.min_wiat is not known", "min_wait is a limit of data-"),
        (
            "[rules.data-wait-fraction]\nmax = 1",
            "rules.data-wait-fraction is not known",
            "data_wait_fraction is a metric",
        ),
        (
            "[rules.channels-last]\nmin_wait = 1",
            "rules.channels-last.min_wait is not known",
            "min_wait is a limit of data-",
        ),
        ("[rules.host-logging]\nmem_headrom = 1", "mem_headrom is not known", "mem_headroom is a metric"),
        ("[tool.profile-train.goals]\ngpu_price = 2", "tool is not known", "Drop the prefix tool.profile-train"),
        ("[tool.ruff]\nline-length = 2", "tool is not known", "Known: opt_in"),
        ("goals = [", "is not valid TOML", ""),
    ],
)
def test_what_is_wrong_is_refused_by_file_and_key(tmp_path, text, message, meant):
    with pytest.raises(ProfilerError) as caught:
        configure(written(tmp_path, text))

    assert message in caught.value.message
    assert meant in caught.value.remedy
    assert "\n" not in caught.value.message
    assert str(tmp_path) in caught.value.message


def test_in_a_pyproject_the_whole_key_is_named(tmp_path):
    with pytest.raises(ProfilerError, match=r"tool\.profile-train\.rules\.channels-last\.min_wait is not known"):
        configure(written(tmp_path, "[tool.profile-train.rules.channels-last]\nmin_wait = 1", "pyproject.toml"))


@pytest.mark.parametrize("name", ["missing.toml", "."])
def test_a_file_that_cannot_be_read_is_our_error(tmp_path, name):
    with pytest.raises(ProfilerError, match="cannot be read"):
        configure(tmp_path / name)


def test_a_file_in_another_encoding_is_our_error(tmp_path):
    (tmp_path / "here.toml").write_bytes(b"x = '\xff'")

    with pytest.raises(ProfilerError, match="is not valid TOML"):
        configure(tmp_path / "here.toml")


def test_a_pyproject_without_our_table_is_no_configuration(tmp_path):
    with pytest.raises(ProfilerError, match=r"has no \[tool\.profile-train\]"):
        configure(written(tmp_path, "[project]\nname = 'x'", "pyproject.toml"))
