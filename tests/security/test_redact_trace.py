"""Secrets are removed from a profiler window, and nothing else in it changes."""

from __future__ import annotations

import gzip
import json
import shutil
import tracemalloc
from pathlib import Path

import pytest
from traces_made import GEMM, Made
from traces_real import PATHS

from profiler.errors import ProfilerError
from profiler.importers import kineto, stream
from profiler.recorder.windows import redact_trace

TOKEN = "hf_AbCdEfGhIjKlMnOpQrStUvWxYz01234567"
H100 = {"id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85_017_493_504, "computeMajor": 9}
NAMES = ('say "hi", "pid": {', "a\\b}, {", "é日\ud83d\ude00", "one\ntwo\ttab", "", "ends in \\", "a=b, c: 3", "}\n]}")


def made(*names: str, **about) -> Made:
    trace = Made(deviceProperties=[H100], distributedInfo={"rank": 0}, **about)
    for at, name in enumerate(names or NAMES):
        trace.host(name, 10 * at, 10 * at + 5, "user_annotation", **{"External id": at, "Call stack": "f.py(3): g"})
        trace.gpu(GEMM, 10 * at + 3, 10 * at + 5, (10 * at + 1, 10 * at + 2))
    return trace


def written(trace: Made, path: Path) -> Path:
    path.write_text(trace.text().replace('"traceEvents"', '"record_shapes": 1,\n"traceEvents"'))
    return path


def test_a_trace_without_secrets_is_not_touched(tmp_path):
    path = written(made(), tmp_path / "t.json")
    before = path.read_bytes()

    redact_trace(path)

    assert path.read_bytes() == before


@pytest.mark.parametrize("piece", [1, 50, 1 << 19])
def test_only_secrets_change(tmp_path, monkeypatch, piece):
    monkeypatch.setattr(stream, "PIECE", piece)
    trace = made(*NAMES, f"get {TOKEN}", 'fetch "https://me:hunter22@host/x"', "knownSecret!")
    trace.host("op", 900, 901, **{"Call stack": f"x.py(1): {TOKEN}", f"to {TOKEN}": ["knownSecret!", 1.5e-3, None]})
    expected = json.loads(
        trace.text().replace(TOKEN, "***").replace("me:hunter22", "***").replace("knownSecret!", "***")
    )
    path = written(trace, tmp_path / "t.json")

    redact_trace(path, ["knownSecret!"])

    assert json.loads(path.read_text()) == expected | {"record_shapes": 1}
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_secrets_outside_the_events_are_hidden(tmp_path):
    path = written(made("x", wandb_api_key="abcdefgh", note=f"with {TOKEN}", size=3), tmp_path / "t.json")

    redact_trace(path)

    found = json.loads(path.read_text())
    assert (found["wandb_api_key"], found["note"], found["size"]) == ("***", "with ***", 3)
    assert found["deviceProperties"] == [H100]


@pytest.mark.parametrize(
    "name", ['fetch "https://me:hunter22@host/x"', "C:\\data x://me:hunter22@h", "a\nb://me:hunter22@h"]
)
def test_unescaped_name_is_repaired(tmp_path, name):
    trace = made("before", "MARK", "after")
    path = tmp_path / "t.json"
    path.write_text(trace.text().replace("MARK", name))

    redact_trace(path)

    names = [
        event["name"] for event in json.loads(path.read_text())["traceEvents"] if event["cat"] == "user_annotation"
    ]
    assert names == ["before", name.replace("me:hunter22@", "***@"), "after"]


def test_unparsable_event_is_removed(tmp_path):
    path = tmp_path / "t.json"
    path.write_text(made("before", "MARK", "after").text().replace('"MARK"', f'"x" {TOKEN}, 3'))

    redact_trace(path)

    assert TOKEN not in path.read_text()
    assert {event["name"] for event in json.loads(path.read_text())["traceEvents"]} == {
        "before",
        "after",
        GEMM,
        "cudaLaunchKernel",
    }


def test_truncated_file_keeps_its_events_without_secrets(tmp_path):
    path = tmp_path / "t.json"
    text = made("first", f"{TOKEN}", f'to "{TOKEN}"').text()
    for cut in range(0, len(text), 7):
        path.write_text(text[:cut])
        whole = _names(path)

        redact_trace(path)

        assert "hf_AbCdEfGhIjKlMnOpQrSt" not in path.read_text(), cut
        assert _names(path) == [name.replace(TOKEN, "***") for name in whole], cut


def _names(path: Path) -> list[str]:
    try:
        trace = kineto.read(path)
    except ProfilerError:
        return []
    return [trace.names[number] for number in trace.ranges.name]


def test_gzipped_window_stays_gzipped(tmp_path):
    path = made("x", TOKEN).write(tmp_path / "t.json.gz")

    redact_trace(path)

    assert TOKEN not in gzip.decompress(path.read_bytes()).decode()
    assert "***" in _names(path)


def test_large_window_is_redacted_with_little_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(stream, "PIECE", 1 << 16)
    trace = made(*(f"{number} {TOKEN}" for number in range(20_000)))
    path = trace.write(tmp_path / "t.json")
    assert path.stat().st_size > 8_000_000
    del trace

    tracemalloc.start()
    redact_trace(path)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert most < path.stat().st_size / 2
    assert TOKEN.encode() not in path.read_bytes()


@pytest.mark.skipif(not PATHS, reason="PROFILE_TRAIN_TRACES is not a folder with traces")
def test_real_traces_do_not_change(tmp_path):
    """Some contain an environment that their writer added, with a token: only the token is hidden."""
    for source in PATHS:
        path = Path(shutil.copy(source, tmp_path))
        expected = json.loads(gzip.decompress(source.read_bytes()))
        environment = expected.get("metadata", {}).get("system", {}).get("env", {})
        environment |= {name: "***" for name in environment if name == "HF_TOKEN"}

        redact_trace(path)

        assert environment or path.read_bytes() == source.read_bytes(), source.name
        assert json.loads(gzip.decompress(path.read_bytes())) == expected, source.name
