"""Earlier runs of one script, from a data set made of them."""

from dataclasses import replace

import pytest
from fleet_made import DAY, START, result, row, write

from advisor.fleet import dataset
from advisor.fleet.history import MOST, past_runs
from advisor.fleet.read import read
from profiler.errors import ProfilerError

pytest.importorskip("duckdb", reason="needs the extra `fleet`")


@pytest.fixture
def fleet(tmp_path):
    """Import runs; return the data set."""

    def made(*runs):
        rows = [read(str(write(tmp_path / f"runs/{run.id}", run, result())), "an import") for run in runs]
        dataset.write(tmp_path / "fleet", "an import", rows)
        return tmp_path / "fleet"

    return made


def test_runs_of_the_same_script_come_newest_first_with_what_changed(fleet):
    runs = [
        row(0, started_at=START, commit="a" * 40, host="one"),
        row(1, started_at=START + DAY, commit="b" * 40, host="one"),
        row(2, started_at=START + 2 * DAY, commit="b" * 40, host="two"),
        row(3, started_at=START + 3 * DAY, commit="c" * 40, host="two"),
    ]
    other = replace(row(4, started_at=START), command=("other.py",))

    past = past_runs(fleet(*runs, other), runs[3])

    assert [(run.started, run.changed) for run in past] == [
        (START + 2 * DAY, ("host",)),
        (START + DAY, ("commit",)),
        (START, ()),
    ]


def test_only_most_recent_runs_are_read(fleet):
    runs = [row(number, started_at=START + number) for number in range(MOST + 5)]

    past = past_runs(fleet(*runs), runs[-1])

    assert [run.started for run in past] == [START + number for number in range(MOST + 3, 3, -1)]


def test_a_folder_without_runs_is_refused(tmp_path):
    with pytest.raises(ProfilerError):
        past_runs(tmp_path, row(0))
