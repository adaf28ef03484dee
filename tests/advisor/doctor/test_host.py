"""Limits just above and just below what is told."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from advisor.doctor import disk, host, permissions
from advisor.doctor.finding import State
from advisor.doctor.host import GIB, Host
from advisor.doctor.stack import Torch

HOST = Host(
    cores=8.0,
    cores_allowed=8,
    cores_total=8,
    load=1.0,
    memory=64 * GIB,
    memory_total=64 * GIB,
    memory_left=32 * GIB,
    shared=32 * GIB,
    shared_left=31 * GIB,
)
TORCH = Torch("python", "3.12.0", "2.8.0", threads=8)


def told(changed, name):
    return next((each for each in host.findings(replace(HOST, **changed), TORCH) if each.name == name), None)


@pytest.mark.parametrize(
    ("name", "changed", "state"),
    [
        ("cores", {}, State.OK),
        ("cores", {"quota": 2.0, "cores": 2.0}, State.WARNING),
        ("cores", {"quota": 8.0}, State.OK),
        ("cores", {"cores": 1.0}, State.WARNING),
        ("memory", {"memory_left": 6.5 * GIB}, State.OK),
        ("memory", {"memory_left": 6.3 * GIB}, State.WARNING),
        ("memory", {"memory": 8 * GIB, "memory_left": 6 * GIB}, State.OK),
        ("/dev/shm", {"shared": GIB, "shared_left": GIB}, State.OK),
        ("/dev/shm", {"shared": 64 << 20, "shared_left": 64 << 20}, State.WARNING),
        ("/dev/shm", {"shared_left": 15 << 20}, State.FIX),
        ("/dev/shm", {"shared": None}, State.FIX),
        ("load", {"load": 4.1}, State.WARNING),
        ("NUMA", {"numa": {0: "0-3", 1: "4-7"}}, State.OK),
    ],
)
def test_each_has_its_limit(name, changed, state):
    found = told(changed, name)

    assert found.state is state
    assert bool(found.remedy) is (state is not State.OK)


def test_a_quota_says_how_many_threads():
    found = told({"quota": 2.5, "cores": 2.5}, "cores")

    assert "torch starts 8 threads" in found.said
    assert "OMP_NUM_THREADS=2" in found.remedy


def test_no_load_no_line():
    assert told({"load": 3.9}, "load") is None
    assert told({"load": None}, "load") is None


def test_this_machine_can_be_looked_at(tmp_path):
    seen = host.look()

    assert 0 < seen.cores <= seen.cores_total
    assert 0 < seen.memory_left <= seen.memory_total
    assert host.look(tmp_path / "none").shared is None


@pytest.mark.parametrize(
    ("scope", "capabilities", "state"),
    [
        (None, 0, State.OK),
        ("0", 0, State.OK),
        ("1", 0, State.WARNING),
        ("1", 1 << 19, State.OK),
        ("2", 0, State.WARNING),
        ("3", 1 << 19, State.WARNING),
    ],
)
def test_ptrace_follows_yama(tmp_path, scope, capabilities, state):
    (tmp_path / "self").mkdir()
    (tmp_path / "self/status").write_text(f"Name:\tx\nCapEff:\t{capabilities:016x}\n")
    if scope is not None:
        (tmp_path / "sys/kernel/yama").mkdir(parents=True)
        (tmp_path / "sys/kernel/yama/ptrace_scope").write_text(f"{scope}\n")

    assert permissions.ptrace(tmp_path).state is state


def test_data_is_read(tmp_path):
    for number in range(20):
        (tmp_path / f"{number}.bin").write_bytes(os.urandom(1000))

    reading = disk.read(tmp_path)

    assert (reading.files, reading.bytes) == (20, 20_000)
    assert "files/s of 1,000 B" in disk.of_data(tmp_path).said


def test_reading_ends_in_time(tmp_path):
    for number in range(50):
        (tmp_path / f"{number}.bin").write_bytes(bytes(1 << 20))

    assert disk.read(tmp_path, longest=0.0).files == 1


@pytest.mark.parametrize(("made", "state"), [(None, State.FIX), ("folder", State.WARNING), ("empty", State.WARNING)])
def test_data_that_is_not_there_is_told(tmp_path, made, state):
    data = tmp_path / "data"
    if made == "folder":
        data.mkdir()
    elif made == "empty":
        data.touch()

    assert disk.of_data(data).state is state


@pytest.mark.parametrize(
    ("files", "volume", "state"),
    [
        (100, 200 << 20, State.OK),
        (100, 140 << 20, State.WARNING),  # large files, 140 MiB/s
        (400, 40 << 20, State.WARNING),  # small ones, 400 a second
        (600, 60 << 20, State.OK),
    ],
)
def test_slow_data_is_told(monkeypatch, tmp_path, files, volume, state):
    monkeypatch.setattr(disk, "read", lambda data: disk.Reading(files, volume, 1.0, "nfs4"))

    assert disk.of_data(tmp_path).state is state


@pytest.mark.skipif(os.getuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_is_told():
    (found, *_) = disk.findings(Path("/proc"), None)

    assert found.state is State.WARNING
