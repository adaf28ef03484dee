"""Writing verified.json and reading it back."""

import json

import pytest

from advisor.judging.verdict import Verdict
from advisor.verify import kept
from advisor.verify.kept import Verified
from profiler import ours
from profiler.errors import ProfilerError

TRIED = Verified(
    rule="data-workers-zero",
    verdict=Verdict.CONFIRMED,
    predicted=(0.4, 0.5, 0.6),
    removed=(0.45, 0.5, 0.55),
    seconds=(0.1, 0.05),
    steps=120,
    processes=3,
)
FAILED = Verified(rule="compile-model", verdict=Verdict.FAILED, predicted=None, why="no compiler")


def test_trials_round_trip(tmp_path):
    kept.write(tmp_path, {TRIED.rule: TRIED, FAILED.rule: FAILED})

    assert kept.read(tmp_path) == {TRIED.rule: TRIED, FAILED.rule: FAILED}
    assert (tmp_path / kept.FILE).stat().st_mode & 0o777 == 0o600


def test_trials_file_is_listed_as_own_file(tmp_path):
    kept.write(tmp_path, {TRIED.rule: TRIED})

    assert ours.unchanged(tmp_path) == [tmp_path / kept.FILE]


def test_missing_file_means_no_trials(tmp_path):
    assert kept.read(tmp_path) == {}


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"schema": "other", "trials": []}', '{"schema": 1', "null"])
def test_foreign_file_is_named_in_error(tmp_path, text):
    (tmp_path / kept.FILE).write_text(text)

    with pytest.raises(ProfilerError, match=kept.FILE):
        kept.read(tmp_path)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("predicted", [0.4, 0.5]),
        ("predicted", [0.4, 0.3, 0.6]),
        ("removed", [0.4, 0.5, 1.1]),
        ("removed", [0.4, 0.5, float("nan")]),
        ("removed", ["a", "b", "c"]),
        ("seconds", [0.1, 0.0]),
        ("seconds", [10**400, 1]),
        ("memory", 10**30),
        ("memory", "much"),
        ("steps", 1.5),
        ("losses_agree", "yes"),
        ("why", ["a"]),
        ("rule", {}),
        ("verdict", "splendid"),
    ],
)
def test_invalid_values_are_refused(tmp_path, name, value):
    kept.write(tmp_path, {TRIED.rule: TRIED})
    found = json.loads((tmp_path / kept.FILE).read_text())
    found["trials"][0][name] = value
    (tmp_path / kept.FILE).write_text(json.dumps(found))

    with pytest.raises(ProfilerError, match="cannot be read"):
        kept.read(tmp_path)


def test_invalid_utf_8_is_refused(tmp_path):
    kept.write(tmp_path, {TRIED.rule: TRIED})
    (tmp_path / kept.FILE).write_bytes((tmp_path / kept.FILE).read_bytes().replace(b"data-", b"\xff-"))

    with pytest.raises(ProfilerError, match="cannot be read"):
        kept.read(tmp_path)


@pytest.mark.parametrize("trials", ['[{"rule": "a"}]', '[{"rule": "a", "verdict": "splendid"}]', "[3]"])
def test_invalid_trials_are_refused(tmp_path, trials):
    (tmp_path / kept.FILE).write_text(f'{{"schema": "{kept.SCHEMA}", "trials": {trials}}}')

    with pytest.raises(ProfilerError, match="cannot be read"):
        kept.read(tmp_path)
