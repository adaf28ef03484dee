"""Values just above and just below the limits."""

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from advisor.doctor import disk, host, permissions
from advisor.doctor.finding import CheckState
from advisor.doctor.host import GIB, Host
from advisor.doctor.stack import Torch
from profiler.attach import inject

HOST = Host(
    cores=8.0,
    cores_allowed=8,
    cores_total=8,
    cpu_model=None,
    platform="Linux",
    numa_nodes={},
    load=1.0,
    memory_total=64 * GIB,
    memory_installed=64 * GIB,
    memory_left=32 * GIB,
    shared=32 * GIB,
    shared_left=31 * GIB,
)
TORCH = Torch("python", "3.12.0", "2.8.0", threads=8)


def check(changed, name):
    return next((each for each in host.findings(replace(HOST, **changed), TORCH) if each.name == name), None)


@pytest.mark.parametrize(
    ("name", "changed", "state"),
    [
        ("cores", {}, CheckState.OK),
        ("cores", {"quota": 2.0, "cores": 2.0}, CheckState.WARNING),
        ("cores", {"quota": 8.0}, CheckState.OK),
        ("cores", {"cores": 1.0}, CheckState.WARNING),
        ("memory", {"memory_left": 6.5 * GIB}, CheckState.OK),
        ("memory", {"memory_left": 6.3 * GIB}, CheckState.WARNING),
        ("memory", {"memory_total": 8 * GIB, "memory_left": 6 * GIB}, CheckState.OK),
        ("/dev/shm", {"shared": GIB, "shared_left": GIB}, CheckState.OK),
        ("/dev/shm", {"shared": 64 << 20, "shared_left": 64 << 20}, CheckState.WARNING),
        ("/dev/shm", {"shared_left": 15 << 20}, CheckState.FIX),
        ("/dev/shm", {"shared": None}, CheckState.FIX),
        ("load", {"load": 4.1}, CheckState.WARNING),
        ("NUMA", {"numa_nodes": {0: "0-3", 1: "4-7"}}, CheckState.OK),
    ],
)
def test_each_check_has_its_limit(name, changed, state):
    found = check(changed, name)

    assert found.state is state
    assert bool(found.remedy) is (state is not CheckState.OK)


def test_cpu_quota_remedy_names_number_of_threads():
    found = check({"quota": 2.5, "cores": 2.5}, "cores")

    assert "torch starts 8 threads" in found.said
    assert "OMP_NUM_THREADS=2" in found.remedy


def test_no_line_about_load_without_load():
    assert check({"load": 3.9}, "load") is None
    assert check({"load": None}, "load") is None


def test_reads_properties_of_this_machine(tmp_path):
    seen = host.look()

    assert 0 < seen.cores <= seen.cores_total
    assert 0 < seen.memory_left <= seen.memory_installed
    assert host.look(tmp_path / "none").shared is None


@pytest.mark.parametrize(
    ("scope", "capabilities", "state"),
    [
        (None, 0, CheckState.OK),
        ("0", 0, CheckState.OK),
        ("1", 0, CheckState.WARNING),
        ("1", 1 << 19, CheckState.OK),
        ("2", 0, CheckState.WARNING),
        ("3", 1 << 19, CheckState.WARNING),
    ],
)
def test_ptrace_follows_yama(tmp_path, monkeypatch, scope, capabilities, state):
    monkeypatch.setattr(permissions.sampler, "refusal", lambda program: None)
    (tmp_path / "self").mkdir()
    (tmp_path / "self/status").write_text(f"Name:\tx\nCapEff:\t{capabilities:016x}\n")
    if scope is not None:
        (tmp_path / "sys/kernel/yama").mkdir(parents=True)
        (tmp_path / "sys/kernel/yama/ptrace_scope").write_text(f"{scope}\n")

    assert permissions.ptrace(tmp_path).state is state
    assert permissions.stacks(tmp_path).state is (CheckState.OK if scope == "1" else state)


@pytest.mark.process
@pytest.mark.parametrize(("refused", "contained"), [(False, False), (True, False), (True, True)])
def test_stack_sampling_is_tried_if_yama_allows_it(tmp_path, monkeypatch, refused, contained):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    proc = tmp_path / "proc"
    proc.mkdir()
    if contained:
        (tmp_path / ".dockerenv").touch()
    if refused:
        program = tmp_path / "py-spy"
        program.write_text("#!/bin/sh\necho 'Error: Permission Denied: Try running again as root.' >&2\nexit 1\n")
        program.chmod(0o755)
        monkeypatch.setattr(permissions.sampler, "executable", lambda: str(program))

    found = permissions.stacks(proc)

    assert found.state is (CheckState.WARNING if refused else CheckState.OK)
    assert bool(found.remedy) is contained


def test_data_is_read(tmp_path):
    for number in range(20):
        (tmp_path / f"{number}.bin").write_bytes(os.urandom(1000))

    assert disk.read(tmp_path)[:2] == (20, 20_000)
    assert "files/s of 1,000 B" in disk.of_data(tmp_path).said


def test_reading_stops_at_time_limit(tmp_path):
    for number in range(50):
        (tmp_path / f"{number}.bin").write_bytes(bytes(1 << 20))

    assert disk.read(tmp_path, longest=0.0)[0] == 1


@pytest.mark.parametrize(
    ("made", "state"), [(None, CheckState.FIX), ("folder", CheckState.WARNING), ("empty", CheckState.WARNING)]
)
def test_missing_or_empty_data_is_reported(tmp_path, made, state):
    data = tmp_path / "data"
    if made == "folder":
        data.mkdir()
    elif made == "empty":
        data.touch()

    assert disk.of_data(data).state is state


@pytest.mark.parametrize(
    ("files", "volume", "state"),
    [
        (100, 200 << 20, CheckState.OK),
        (100, 140 << 20, CheckState.WARNING),  # large files, 140 MiB/s
        (400, 40 << 20, CheckState.WARNING),  # small ones, 400 a second
        (600, 60 << 20, CheckState.OK),
    ],
)
def test_slow_data_is_reported(monkeypatch, tmp_path, files, volume, state):
    monkeypatch.setattr(disk, "read", lambda data: (files, volume, 1.0))

    assert disk.of_data(tmp_path).state is state


@pytest.mark.skipif(os.getuid() == 0, reason="root may write anywhere")
def test_unwritable_folder_is_reported():
    (found, *_) = disk.findings(Path("/proc"), None)

    assert found.state is CheckState.WARNING


@pytest.fixture
def limited(tmp_path, monkeypatch):
    """Return a /proc with Yama's usual limit."""
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    proc = tmp_path / "proc"
    (proc / "self").mkdir(parents=True)
    (proc / "self/status").write_text("CapEff:\t0\n")
    (proc / "sys/kernel/yama").mkdir(parents=True)
    (proc / "sys/kernel/yama/ptrace_scope").write_text("1\n")
    return proc


@pytest.mark.parametrize(
    ("container", "user", "expected"),
    [
        (False, 1000, "To allow it for all your programs"),
        (True, 1000, "On the machine itself, not in the container: sudo sysctl"),
        (True, 0, "--cap-add SYS_PTRACE"),
    ],
)
def test_ptrace_remedy_depends_on_container_and_user(limited, monkeypatch, container, user, expected):
    """A container cannot change the machine's setting, and its capabilities are root's."""
    monkeypatch.setattr(os, "geteuid", lambda: user)
    if container:
        (limited.parent / ".dockerenv").touch()

    remedy = permissions.ptrace(limited).remedy

    assert expected in remedy
    assert ("SYS_PTRACE" in remedy) is (user == 0)


@pytest.fixture
def machine(monkeypatch):
    """Make a machine, with gdb or without, on which nothing is known about its calls."""

    def make(*, ptrace=False, gdb=False, remote_exec=False):
        monkeypatch.setattr(inject.ptrace, "is_possible", lambda pid: ptrace)
        monkeypatch.setattr(inject.gdb, "is_there", lambda: gdb)
        if remote_exec:
            monkeypatch.setattr(sys, "remote_exec", print, raising=False)
        else:
            monkeypatch.delattr(sys, "remote_exec", raising=False)

    return make


@pytest.mark.parametrize(
    ("ways", "state", "expected"),
    [
        ({"ptrace": True, "gdb": True}, CheckState.OK, "by ptrace"),
        ({"gdb": True}, CheckState.OK, "by gdb"),
        ({}, CheckState.WARNING, "gdb is needed"),
        ({"remote_exec": True}, CheckState.OK, "by sys.remote_exec"),
    ],
)
def test_reports_method_used_by_attach(machine, tmp_path, ways, state, expected):
    (tmp_path / "self").mkdir()
    (tmp_path / "self/maps").touch()
    machine(**ways)
    ours = ".".join(map(str, sys.version_info[:3]))

    found = permissions.attach(Torch("python", ours), tmp_path)

    assert found.state is state
    assert expected in found.said
    assert ("gdb" in found.remedy) is (state is CheckState.WARNING)


def test_remote_exec_requires_same_python_version(machine, tmp_path):
    (tmp_path / "self").mkdir()
    (tmp_path / "self/maps").touch()
    machine(ptrace=True, remote_exec=True)

    assert "by ptrace" in permissions.attach(Torch("python", "3.99.1"), tmp_path).said


def test_attach_requires_linux(tmp_path):
    assert "Linux" in permissions.attach(TORCH, tmp_path).said
