"""Several traces, read by several processes."""

import os

import pytest

from profiler.errors import ProfilerError
from profiler.importers import several
from profiler.importers.analysis import analyze
from profiler.importers.stream import NO_TRACE


@pytest.fixture
def paths(tmp_path, monkeypatch):
    """Return the traces of three ranks and a file that is not a trace, on a machine that may read two at once."""
    monkeypatch.setattr(several, "LARGE", 0)
    monkeypatch.setattr(several, "_cores", lambda: 2)
    made = [tmp_path / f"rank{number}.json" for number in range(3)]
    for number, path in enumerate(made):
        event = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 5.0, "dur": 10.0 + number}
        path.write_text(f'{{"traceEvents": [{str(event).replace(chr(39), chr(34))}]}}')
    (tmp_path / "other.json").write_text("no trace")
    return [*made, tmp_path / "other.json"]


@pytest.mark.process
def test_traces_are_analyzed_in_order_with_same_results_as_alone(paths):
    *found, other = several.analyze_all(paths)

    assert found == [analyze(path) for path in paths[:-1]]
    assert isinstance(other, ProfilerError)
    assert other.remedy == NO_TRACE


@pytest.mark.process
def test_traces_of_a_dead_helper_process_are_still_read(paths, monkeypatch):
    monkeypatch.setattr(several, "_help", _end)

    *found, other = several.analyze_all(paths)

    assert found == [analyze(path) for path in paths[:-1]]
    assert isinstance(other, ProfilerError)


def _end(paths, taken, into):
    """Take a trace and exit, like a process that is killed while it reads."""
    with taken.get_lock():
        taken.value += 1
    os._exit(9)
