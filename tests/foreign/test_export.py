"""The examples of docs/export.md, with the real packages."""

import re
from pathlib import Path

import pytest

from advisor.cli import main
from profiler.schema import Process, Run, Step
from profiler.store import Writer

PAGE = Path(__file__).parents[2] / "docs" / "export.md"


def test_documented_pandas_and_duckdb_examples_work(tmp_path, monkeypatch, capsys):
    for name in ("pandas", "duckdb", "pyarrow"):
        pytest.importorskip(name)
    monkeypatch.chdir(tmp_path)
    writer = Writer(tmp_path / "runs" / "first", "h")
    machine = {"cores": 2.0, "cores_total": 2, "memory_total": 2**30, "platform": "Linux", "python": "3.11"}
    writer.add(Run(id="r", version="0.1.0", command=("train.py",), cwd="/", host="h", started_at=1.7e9, **machine))
    for rank in (0, 1):
        writer.add(Process(pid=rank, rank=rank, world_size=2, started=0.5))
        phases = {"data_wait": 0.0625, "forward": 0.0625}
        writer.add(*[Step(pid=rank, index=i, start=i / 8, duration=0.125 * (1 + rank), **phases) for i in range(50)])
    writer.close()
    for form in ("csv", "parquet"):
        assert main(["export", "runs/first", "--to", form]) == 0
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)

    exec(code, {})

    shown = capsys.readouterr().out
    assert re.search(r"^h\s+0\s+0\.125\s+0\.0625$", shown, re.MULTILINE), shown
    assert re.search(r"^step_time_mean\s+0\.125", shown, re.MULTILINE), shown
    assert re.search(r"│\s*1 │\s*0\.25 │", shown), shown
