import errno
import json
import os
import posix

import pytest

from profiler.agent import event_writer as module
from profiler.agent import ring
from profiler.agent.event_writer import RANK_RECORDS, WORKER_RECORDS, EventWriter
from profiler.agent.files import contents


@pytest.fixture
def event_writer(tmp_path):
    return EventWriter(str(tmp_path), worker=True)


@pytest.fixture
def reader(event_writer, tmp_path):
    (path,) = tmp_path.glob("*.ring")
    return ring.Reader(str(path))


def facts(folder):
    (path,) = folder.glob("*.facts")
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def test_ring_and_facts_files_share_a_process_id_prefix(event_writer, tmp_path):
    names = sorted(os.listdir(tmp_path))
    assert [name.rpartition(".")[2] for name in names] == ["facts", "ring"]
    assert len({name.rpartition(".")[0] for name in names}) == 1
    assert all(name.startswith(f"{os.getpid()}-") for name in names)


def test_outlet_counts_its_own_writes(tmp_path):
    """The kernel counts these writes as the program's."""

    def writes():
        (line,) = [line for line in contents("/proc/self/io").splitlines() if line.startswith(b"syscw:")]
        return int(line.split()[1])

    before = writes()
    event_writer = EventWriter(str(tmp_path), worker=True)
    event_writer.fact("flags", {})
    assert event_writer.writes == writes() - before == 1


def test_files_are_private_to_the_user(event_writer, tmp_path):
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}


@pytest.mark.parametrize(("worker", "records"), [(True, WORKER_RECORDS), (False, RANK_RECORDS)])
def test_a_worker_gets_a_smaller_ring(tmp_path, worker, records):
    EventWriter(str(tmp_path), worker)
    (path,) = tmp_path.glob("*.ring")
    assert ring.Reader(str(path)).capacity == records


def test_calibration_records_are_not_events(event_writer, reader):
    event_writer.write(0, ring.FETCH, 1, 2)
    kinds = [event.kind for event in reader.read()]
    assert kinds[-1] == ring.FETCH
    assert set(kinds[:-1]) == {0}


def test_costs_are_published(event_writer, reader):
    assert reader.counters() == (event_writer.per_event_ns, 0, 0)
    assert event_writer.per_event_ns >= 200
    event_writer.measured_ns, event_writer.windows_ns = 11, 22
    event_writer.publish()
    assert reader.counters() == (event_writer.per_event_ns, 11, 22)


def test_a_fact_is_a_line_with_kind_and_time(event_writer, tmp_path):
    before = module.clock()
    event_writer.fact("loader", {"id": 1, "dataset": "Ünïcode \n \udcff", "place": None})
    event_writer.fact("flags", {})
    first, second = facts(tmp_path)
    assert first == {"kind": "loader", "t": first["t"], "id": 1, "dataset": "Ünïcode \n \udcff", "place": None}
    assert second["kind"] == "flags"
    assert before <= first["t"] <= second["t"] <= module.clock()


def test_values_unknown_to_json_are_written_as_text(event_writer, tmp_path):
    event_writer.fact("loader", {"id": 1, "sampler": object})
    assert facts(tmp_path)[0]["sampler"] == "<class 'object'>"


def test_full_disk_loses_only_that_fact(event_writer, tmp_path, monkeypatch):
    def full(descriptor, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(posix, "write", full)
        event_writer.fact("flags", {"lost": True})
    event_writer.fact("flags", {"lost": False})
    assert [fact["lost"] for fact in facts(tmp_path)] == [False]


def test_audit_hook_that_forbids_files_loses_only_that_fact(event_writer, tmp_path, monkeypatch):
    def forbidden(*args):
        raise RuntimeError("forbidden")

    with monkeypatch.context() as patched:
        patched.setattr(posix, "open", forbidden)
        event_writer.fact("flags", {"lost": True})
        with pytest.raises(PermissionError):
            contents("/proc/self/io")
    event_writer.fact("flags", {"lost": False})
    assert [fact["lost"] for fact in facts(tmp_path)] == [False]


def test_full_disk_leaves_no_files_behind(tmp_path, monkeypatch):
    def full(descriptor, offset, size):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(posix, "posix_fallocate", full)
    with pytest.raises(OSError, match="No space"):
        EventWriter(str(tmp_path), worker=False)
    assert os.listdir(tmp_path) == []


def test_missing_folder_raises_oserror(tmp_path):
    with pytest.raises(OSError, match="gone"):
        EventWriter(str(tmp_path / "gone"), worker=False)


def test_unchanged_fact_is_not_written_again(event_writer, tmp_path):
    for body in ({"id": 1, "n": 1}, {"id": 1, "n": 1}, {"id": 2, "n": 1}, {"id": 1, "n": 2}, {"id": 1, "n": 1}):
        event_writer.fact("loader", body)
    assert [(fact["id"], fact["n"]) for fact in facts(tmp_path)] == [(1, 1), (2, 1), (1, 2), (1, 1)]
    assert event_writer.writes == 4


def test_ring_above_file_size_limit_is_not_created(tmp_path, monkeypatch):
    monkeypatch.setattr(ring, "_file_size_limit", lambda: 4096)
    with pytest.raises(OSError, match="File too large"):
        EventWriter(str(tmp_path), worker=True)
    assert list(tmp_path.iterdir()) == []
