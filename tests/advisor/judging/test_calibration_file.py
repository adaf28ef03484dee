"""The file of verdicts: appended to, read by others than its writer, damaged, and full."""

import json
import stat
from pathlib import Path

import pytest

from advisor.judging import calibration_file
from advisor.judging.calibration import Calibration
from advisor.judging.calibration_file import append, case, read
from advisor.judging.verdict import Verdict
from profiler.errors import ProfilerError


def entry(number=0, **changes):
    return {
        "case": f"case {number}",
        "rule": "data-workers-zero",
        "verdict": "confirmed",
        "predicted": (0.4, 0.5, 0.6),
        "removed": (0.45, 0.5, 0.55),
        **changes,
    }


@pytest.fixture
def file(tmp_path):
    return tmp_path / "data" / "calibration.jsonl"


def test_appended_entries_are_read(file):
    append(file, entry(1))
    append(file, entry(2, verdict="failed", predicted=None, removed=None))

    calibration, note = read(file)
    assert note == ""
    first, second = calibration.tried
    assert (first.verdict, first.predicted, first.removed) == (Verdict.CONFIRMED, (0.4, 0.5, 0.6), (0.45, 0.5, 0.55))
    assert (second.verdict, second.predicted, second.removed) == (Verdict.FAILED, None, None)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_last_line_of_each_case_counts(file):
    append(file, entry(1, verdict="inconclusive"))
    append(file, entry(2, verdict="refuted"))
    append(file, entry(1, verdict="partial"))

    calibration, _ = read(file)
    assert [each.verdict for each in calibration.tried] == [Verdict.REFUTED, Verdict.PARTIAL]
    assert calibration.numbers == {"data-workers-zero": 3}


def test_case_name_is_unique_and_does_not_reveal_path():
    names = {case(("/home/me", script), rule) for script in ("a.py", "b.py") for rule in ("one", "two")}

    assert len(names) == 4
    assert not any("home" in name for name in names)


def test_missing_file_is_empty_calibration(file):
    assert read(file) == (Calibration(), "")


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b"[1]",
        b"3",
        b"\xff\x00",
        b'{"schema": "other"}',
        b"[" * 100_000,
        json.dumps({"schema": calibration_file.SCHEMA, **entry()}).encode().replace(b"data-", b"\xff-"),
        *(
            json.dumps({"schema": calibration_file.SCHEMA, **entry(**changes)}).encode()
            for changes in (
                {"verdict": "splendid"},
                {"rule": 3},
                {"case": None},
                {"removed": [0.1, 0.2]},
                {"removed": [0.3, 0.2, 0.1]},
                {"removed": [0.1, 0.2, 1.2]},
                {"predicted": [float("-inf"), 0.2, 0.3]},
                {"predicted": ["a", 0.2, 0.3]},
                {"predicted": [10**400, 0.2, 0.3]},
            )
        ),
    ],
)
def test_unreadable_line_is_reported_skipped_and_kept(file, line):
    append(file, entry(1))
    with open(file, "ab") as opened:
        opened.write(line + b"\n")
    append(file, entry(2))

    calibration, note = read(file)
    assert len(calibration.tried) == 2
    assert f"Line 2 of {file}" in note
    assert line in file.read_bytes()


def test_truncated_line_does_not_affect_others(file):
    append(file, entry(1))
    with open(file, "ab") as opened:
        opened.write(b'{"schema": "prof')
    append(file, entry(2))

    calibration, note = read(file)
    assert len(calibration.tried) == 2
    assert note.startswith("Line 2 of ")


def test_folder_or_device_reads_as_empty_and_stores_nothing(tmp_path):
    assert read(tmp_path) == (Calibration(), "")
    with pytest.raises(ProfilerError, match="could not be added"):
        append(tmp_path, entry())
    append(Path("/dev/null"), entry())
    assert read(Path("/dev/null")) == (Calibration(), "")


def test_full_file_keeps_newer_half_and_backs_up_older(file, monkeypatch):
    append(file, entry(0))
    monkeypatch.setattr(calibration_file, "MOST", 10 * file.stat().st_size)
    for number in range(1, 25):
        append(file, entry(number, verdict="better" if number == 24 else "confirmed"))

    calibration, note = read(file)
    assert note == ""
    assert file.stat().st_size <= calibration_file.MOST
    assert calibration.tried[-1].verdict is Verdict.BETTER
    assert 5 <= len(calibration.tried) <= 10
    old = file.with_name("calibration.jsonl.old")
    assert 5 <= len(read(old)[0].tried) <= 10
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert sorted(path.name for path in file.parent.iterdir()) == ["calibration.jsonl", "calibration.jsonl.old"]
