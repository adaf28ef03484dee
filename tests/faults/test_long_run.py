"""The run takes a day."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from programs import ROOT

from advisor.publish import publish
from profiler.schema import Batch, HostSample, Step
from profiler.store import Writer, find, read


@pytest.mark.parametrize(
    ("step", "workers"),
    [
        pytest.param(
            0.5,
            0,
            marks=pytest.mark.fault(
                "24 h of steps, 172,800 of them (only the clock is simulated)",
                "-",
                "everything, with older steps merged: the store stays below 20 MB, the recorder's memory does not grow",
                "the usual report",
            ),
        ),
        pytest.param(
            5.0,
            2,
            marks=pytest.mark.fault(
                "24 h with 2,880 workers, two new ones per epoch (simulated)",
                "-",
                "everything; the store stays below 20 MB, the recorder's memory grows by 3 kB per worker",
                "the usual report",
            ),
        ),
    ],
)
@pytest.mark.process
def test_storage_and_memory_stay_bounded_over_a_day(step, workers, tmp_path):
    folder = tmp_path / "run"
    words = [sys.executable, Path(__file__).with_name("a_day.py"), folder, str(step), str(workers)]
    ran = subprocess.run(words, cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, capture_output=True, check=True)
    day = json.loads(ran.stdout)

    (path,) = find(folder)
    tables = read(path)
    assert sum(row.count for row in tables.steps) == day["steps"] == 24 * 3600 / step
    assert sum(row.count for row in tables.batches) == 10 * day["workers"]
    assert {process.events_lost for process in tables.processes} == {0}
    assert len(tables.processes) <= 1 + day["workers"]
    for rows, kind in ((tables.steps, Step), (tables.batches, Batch), (tables.host_samples, HostSample)):
        assert len(rows) <= 2 * Writer.LIMITS[kind]
    assert path.stat().st_size < 20e6
    assert not (folder / "rings").exists()
    first, *_, last = day["resident"]  # after 3 h and after 24 h
    assert last - first < 4e6 + 3_000 * day["workers"]
    assert publish(folder).run.ended == "completed"
