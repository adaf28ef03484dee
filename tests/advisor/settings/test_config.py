"""The configuration file: what it sets, and that any mistake in it is refused by name."""

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


def test_defaults_apply_without_file():
    assert configure().goals == {}
    zero = rules(None)["data-workers-zero"]
    assert (zero.limits, zero.off, zero.in_force["min_wait"]) == ({}, "", 0.05)


def test_limit_applies_only_to_its_rule(tmp_path):
    found = rules(written(tmp_path, "[rules.precision-bf16]\nmin_share = 0.5"))

    assert found["precision-bf16"].in_force["min_share"] == 0.5
    assert found["precision-fp16-scaler"].in_force["min_share"] == 0.2, "shares the threshold, not the setting"


def test_disabled_rule_says_what_disabled_it(tmp_path):
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


def test_command_line_overrides_configuration(tmp_path):
    config = configure(written(tmp_path, '[goals]\ngoal = "cost"\ngpu_price = 2.5'))

    assert config.declared({"goal": "memory", "gpu_price": None}) == {"goal": "memory", "gpu_price": 2.5}


def test_settings_are_read_from_pyproject_table(tmp_path):
    text = '[project]\nname = "x"\n[tool.profile-train.rules.data-workers-zero]\nmin_wait = 0.08'

    assert rules(written(tmp_path, text, "pyproject.toml"))["data-workers-zero"].in_force["min_wait"] == 0.08


@pytest.mark.parametrize(
    ("text", "message", "meant"),
    [
        ("[goal]\nx = 1", "goal is not a known key", "Did you mean goals?"),
        ("[goals]\ngpu_prise = 2", "goals.gpu_prise is not a known key", "Did you mean gpu_price?"),
        ("[goals]\ngpu_price = true", "goals.gpu_price is true or false", ""),
        ('[goals]\ngpu_price = "cheap"', "goals.gpu_price is invalid: 'cheap' is not a price", "Write a number"),
        ("[goals]\nmtbf = 7200", "goals.mtbf is invalid: '7200' is not a time", '"2h"'),
        ("[goals]\nspot_discount = 65", "goals.spot_discount is invalid", "65%"),
        ('[goals]\ngoal = "speed"', "goals.goal is invalid: 'speed' is not a goal", "throughput, memory"),
        ('[goals]\nquality = "good"', "goals.quality is invalid", "val_acc>=0.76"),
        ("[goals]\ntarget_batch = 1.5", "goals.target_batch is invalid", "whole number"),
        ('[goals]\ncapacity = "yes"', "goals.capacity is a string, not true or false", "capacity = true"),
        ("[goals]\nvalidation = 3", "goals.validation is a number, not a string", ""),
        ("goals = 3", "goals is a number, not a table", "[goals]"),
        ("[rules.data-worker-zero]\nmin_wait = 1", "rules.data-worker-zero is not a known key", "data-workers-zero?"),
        ("[rules.data-workers-zero]\nmin_wiat = 1", "rules.data-workers-zero.min_wiat is not a known key", "min_wait?"),
        ("[rules.data-workers-zero]\nqq = 1", "data-workers-zero.qq is not a known key", "explain data-workers-zero"),
        ('[rules.data-workers-zero]\nmin_wait = "5%"', "min_wait is a string, not a number", ""),
        ("[rules.data-workers-zero]\nmin_wait = true", "min_wait is true or false, not a number", ""),
        ("[rules.data-workers-zero]\nmin_wait = nan", "min_wait is not finite", ""),
        (f"[rules.data-workers-zero]\nmin_wait = 1{'0' * 400}", "min_wait is not finite", ""),
        ("[rules.data-workers-zero]\nenabled = 0", "enabled is a number, not true or false", ""),
        ("[rules]\ndata-workers-zero = 1", "rules.data-workers-zero is a number, not a table", ""),
        ('opt_in = ["precision-fp9"]', "opt_in names 'precision-fp9', which is not a rule", "Did you mean"),
        ('opt_in = "precision-fp8"', "opt_in is a string, not a list of strings", ""),
        ("rules_path = 3", "rules_path is a number, not a string", ""),
        ('rules_path = "nowhere"', "rules_path is 'nowhere', but ", "relative to that file"),
        ("[rules]\nmin_wiat = 0.1", "rules.min_wiat is not a known key", "min_wait is a limit of data-"),
        (
            "[rules.data-wait-fraction]\nmax = 1",
            "rules.data-wait-fraction is not a known key",
            "data_wait_fraction is a metric",
        ),
        (
            "[rules.channels-last]\nmin_wait = 1",
            "rules.channels-last.min_wait is not a known key",
            "min_wait is a limit of data-",
        ),
        ("[rules.host-logging]\nmem_headrom = 1", "mem_headrom is not a known key", "mem_headroom is a metric"),
        ("[tool.profile-train.goals]\ngpu_price = 2", "tool is not a known key", "Remove the prefix"),
        ("[tool.ruff]\nline-length = 2", "tool is not a known key", "Known: opt_in"),
        ("goals = [", "is not valid TOML", ""),
    ],
)
def test_error_names_file_and_key(tmp_path, text, message, meant):
    with pytest.raises(ProfilerError) as caught:
        configure(written(tmp_path, text))

    assert message in caught.value.message
    assert meant in caught.value.remedy
    assert "\n" not in caught.value.message
    assert str(tmp_path) in caught.value.message


def test_error_in_pyproject_names_full_key(tmp_path):
    with pytest.raises(ProfilerError, match=r"tool\.profile-train\.rules\.channels-last\.min_wait is not a known key"):
        configure(written(tmp_path, "[tool.profile-train.rules.channels-last]\nmin_wait = 1", "pyproject.toml"))


@pytest.mark.parametrize("name", ["missing.toml", "."])
def test_unreadable_file_is_profiler_error(tmp_path, name):
    with pytest.raises(ProfilerError, match="cannot be read"):
        configure(tmp_path / name)


def test_file_in_other_encoding_is_profiler_error(tmp_path):
    (tmp_path / "here.toml").write_bytes(b"x = '\xff'")

    with pytest.raises(ProfilerError, match="is not valid TOML"):
        configure(tmp_path / "here.toml")


def test_pyproject_without_table_is_refused(tmp_path):
    with pytest.raises(ProfilerError, match=r"has no settings in \[tool\.profile-train\]"):
        configure(written(tmp_path, "[project]\nname = 'x'", "pyproject.toml"))
