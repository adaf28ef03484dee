"""Runs in object stores: real protocols, served on this machine."""

import contextlib
import json
import os
import shutil
import socket

import pytest
from fleet_made import advised, result, row, write
from programs import COMMAND

pytestmark = [pytest.mark.foreign, pytest.mark.process, pytest.mark.filterwarnings("ignore")]  # of the packages


@pytest.fixture
def runs(tmp_path):
    """Write three runs, one of which contains a trial and one of which has no result."""
    for number in range(3):
        write(tmp_path / f"runs/{number}", row(number), result(advice=[advised("workers", 0.4)]) if number else None)
    shutil.copytree(tmp_path / "runs/0", tmp_path / "runs/1/trials/0")
    return tmp_path / "runs"


@pytest.fixture
def s3(monkeypatch):
    pytest.importorskip("s3fs", reason="needs the extra `foreign`")
    server = pytest.importorskip("moto.server", reason="needs the extra `foreign`").ThreadedMotoServer("127.0.0.1", 0)
    server.start()
    host, port = server.get_host_and_port()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "any")
    yield server
    with contextlib.suppress(Exception):
        server.stop()


@pytest.fixture
def gs(monkeypatch):
    monkeypatch.setenv("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")  # it uses gRPC, which the emulator lacks
    pytest.importorskip("gcsfs", reason="needs the extra `foreign`")  # it reads the variable when it is imported
    emulator = pytest.importorskip("gcp_storage_emulator.server", reason="needs the extra `foreign`")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = emulator.create_server("127.0.0.1", port, in_memory=True)
    server.start()
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("FSSPEC_GS_TOKEN", "anon")
    yield server
    server.stop()


@pytest.mark.parametrize("protocol", ["s3", "gs"])
def test_runs_are_read_from_object_stores(protocol, request, runs, start, tmp_path):
    import fsspec

    server = request.getfixturevalue(protocol)
    settings = {"token": "anon", "project": "any"} if protocol == "gs" else {}
    store = fsspec.filesystem(protocol, skip_instance_cache=True, **settings)
    store.mkdir("bucket")
    store.put(str(runs), "bucket/runs", recursive=True)

    def fleet(*places):
        words = ("fleet", *places, "--data", "fleet", "--json")
        ran = start(*COMMAND, *words, env=dict(os.environ)).finish()
        return ran.status, ran.status == 0 and json.loads(ran.out)["status"], b"Traceback" in ran.err

    once = (0, {"complete": 2, "partial": 1}, False)
    assert fleet(f"{protocol}://bucket/runs") == once
    files = sorted(tmp_path.glob("fleet/*/*/*.parquet"))
    assert fleet(f"{protocol}://bucket/runs", f"{protocol}://bucket") == once
    assert sorted(tmp_path.glob("fleet/*/*/*.parquet")) == files  # nothing was new
    store.put(str(write(tmp_path / "late", row(7), result()) / "result.json"), "bucket/runs/0/result.json")
    assert fleet(f"{protocol}://bucket/runs") == (0, {"complete": 3}, False)
    assert fleet(f"{protocol}://bucket/nowhere") == (1, False, False)
    if protocol == "s3":  # gcsfs retries for minutes
        server.stop()
        assert fleet("s3://bucket/runs") == (1, False, False)
