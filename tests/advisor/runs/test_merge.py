"""Joining recordings that were made separately, if they belong together."""

from dataclasses import replace

import pytest
from profiles import RUN

from advisor.runs.load import load
from advisor.runs.merge import merge
from profiler.errors import ProfilerError
from profiler.recorder import folder as run_folder
from profiler.schema import Process, Step
from profiler.store import Writer

COMMAND = ("torchrun", "--nnodes", "2", "--node-rank")


def recorded(folder, rank, *, host="host", world=2, **run):
    store = Writer(folder, host)
    store.add(replace(RUN, id=str(folder), host=host, outcome="completed", **run))
    store.add(Process(pid=7, rank=rank, world_size=world, started=0.0))
    store.add(*[Step(pid=7, index=index, start=0.1 * index, duration=0.1) for index in range(20)])
    store.close()
    return folder


def test_two_nodes_of_one_host_name(tmp_path):
    folders = [
        recorded(tmp_path / str(rank), rank, command=(*COMMAND, str(rank), "train.py"), job="abc") for rank in (0, 1)
    ]
    parts = merge(folders, tmp_path / "both")

    assert [part.ranks for part in parts] == [{0}, {1}]
    assert sorted(path.name for path in (tmp_path / "both").glob("*.db")) == ["run-host-2.db", "run-host.db"]
    assert [rank.process.rank for rank in load(tmp_path / "both").ranks] == [0, 1]
    assert run_folder.is_shared(tmp_path / "both")
    assert (tmp_path / "both").stat().st_mode & 0o077 == 0
    assert all((folder / "run-host.db").exists() for folder in folders), "they are copied"


@pytest.mark.parametrize(
    ("other", "why"),
    [
        ({"rank": 0}, "both contain rank 0"),
        ({"rank": 1, "world": 4}, "world sizes are 2 and 4"),
        ({"rank": 1, "command": ("other.py",)}, "their commands are"),
        ({"rank": 1, "started_at": 3600.0 + 30 * 3600}, "29 h after the other had ended"),
    ],
)
def test_unrelated_recordings_are_not_merged(tmp_path, other, why):
    recorded(tmp_path / "a", 0, started_at=3600.0)
    recorded(tmp_path / "b", **{"started_at": 3600.0, **other})

    with pytest.raises(ProfilerError, match=why):
        merge([tmp_path / "a", tmp_path / "b"], tmp_path / "c")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_refuses_existing_output_and_missing_or_repeated_input(tmp_path):
    folders = [recorded(tmp_path / str(rank), rank) for rank in (0, 1)]
    with pytest.raises(ProfilerError, match="exists already"):
        merge(folders, folders[0])
    with pytest.raises(ProfilerError, match="nothing to merge"):
        merge([folders[0], folders[0]], tmp_path / "c")
    with pytest.raises(ProfilerError, match="no folder"):
        merge([folders[0], tmp_path / "gone"], tmp_path / "c")


def test_run_still_being_recorded_is_not_merged(tmp_path):
    folders = [recorded(tmp_path / str(rank), rank) for rank in (0, 1)]
    run_folder.write_note(folders[1], run_folder.RecordingNote("", 0, 1, None, 1, run_folder.started(1), where=None))
    with pytest.raises(ProfilerError, match="still being recorded"):
        merge(folders, tmp_path / "c")
