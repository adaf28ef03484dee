"""The command `profile-train doctor`."""

import json
import stat
import sys

import pytest

from advisor.cli import main


@pytest.fixture
def doctor(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")

    def call(*words, status=0):
        assert main(["doctor", *words]) == status
        return capsys.readouterr().out

    return call


@pytest.fixture
def bare(tmp_path):
    """Return a Python without torch."""
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho \'{"interpreter": "python", "python": "3.12.0"}\'\n')
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    return str(python)


@pytest.mark.process
def test_each_line_has_state_and_fits_80_columns(doctor, bare):
    text = doctor("--python", bare, status=1)

    assert "fix     torch" in text
    assert "-> " in text
    assert "1 to fix" in text.splitlines()[-1]
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.process
def test_json_holds_state_of_each_check(doctor, bare, tmp_path):
    (tmp_path / "x.bin").write_bytes(bytes(5000))

    result = json.loads(doctor("--json", "--python", bare, "--data", str(tmp_path), status=1))

    states = {each["name"]: each["state"] for each in result["checks"]}
    assert result["schema"] == "profile-train/doctor@1"
    assert states["torch"] == "fix"
    assert {"python", "driver", "cores", "memory", "/dev/shm", "NUMA", "ptrace", "attach", "trials", "data"} <= set(
        states
    )


@pytest.mark.process
def test_checks_torch_of_given_python(doctor):
    pytest.importorskip("torch")

    assert "ok      torch " in doctor("--python", sys.executable)
