import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from profiler.attach import elf, gdb, inject, ptrace
from profiler.attach.inject import Injector
from profiler.errors import ProfilerError

LIKE_BEFORE = (
    *("patched", "optimizer", "single", "modules", "iterators", "fetchers", "gc", "finders"),
    *("finalizers", "threads", "descriptors", "main", "agents", "environment"),
)


pytestmark = pytest.mark.usefixtures("may_trace")


def settings(folder, recorder=None):
    folder.mkdir(exist_ok=True)
    return {"rings": str(folder), "windows": None, "budget": 0.01, "recorder": recorder or os.getpid()}


def begin(folder):
    return {"act": "begin", "settings": settings(folder)}


END = {"act": "end"}


def rings(folder):
    return list(folder.glob("*.ring"))


def test_function_addresses_match_ctypes():
    import ctypes

    found = elf.addresses(os.getpid())

    assert found["Py_AddPendingCall"] == ctypes.cast(ctypes.pythonapi.Py_AddPendingCall, ctypes.c_void_p).value
    assert found["mmap"] == ctypes.cast(ctypes.CDLL(None).mmap, ctypes.c_void_p).value


@pytest.mark.process
def test_replaced_executable_can_be_read(tmp_path):
    """For example by an update of the environment while the program trains."""
    copy = Path(shutil.copy(Path(sys.executable).resolve(), tmp_path))
    words = [copy, "-c", "print(flush=True); input()"]
    with subprocess.Popen(
        words, env={"PYTHONHOME": sys.base_prefix}, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as program:
        program.stdout.readline()
        copy.unlink()
        mapped = dict(elf._first_mappings(program.pid))

        # No names are given: on this machine, the functions may be in a library.
        assert elf._found(program.pid, mapped, [elf._executable(program.pid)], ()) == {}
        program.stdin.write(b"\n")


@pytest.mark.process
def test_python_too_old_for_agent_is_reported(tmp_path):
    order, answer = tmp_path / "order.json", tmp_path / "answer.json"
    order.write_text(json.dumps({**begin(tmp_path / "rings"), "answer": str(answer)}))
    lines = inject._SOURCE.format(order=str(order), agent=str(inject.AGENT))

    subprocess.run([sys.executable, "-c", f"import sys; sys.version_info = (3, 8)\n{lines}"], check=True)

    assert json.loads(answer.read_text()) == {"state": "failed", "message": "its Python is older than 3.9"}


def cycles(program, tmp_path, count):
    """Attach and detach `count` times, each time for some steps."""
    injector = Injector(program.pid)
    try:
        for number in range(count):
            folder = tmp_path / f"rings-{number}"
            assert injector.ask(begin(folder), 120.0)["state"] == "in"
            program.wait_for(lambda folder=folder: rings(folder))
            assert injector.ask(END, 120.0) == {"state": "out"}
    finally:
        injector.close()


def test_hooks_are_installed_and_removed_without_residue(started, tmp_path):
    program = started()
    program.trains()
    before = program.state()
    injector = Injector(program.pid)
    injector.ask(begin(tmp_path / "rings"), 120.0)
    program.wait_for(lambda: rings(tmp_path / "rings"))

    during = program.state()
    again = injector.ask(begin(tmp_path / "rings"), 120.0)
    injector.ask(END, 120.0)
    injector.close()
    cycles(program, tmp_path, 2)

    assert len(during["patched"]) > 5  # otherwise the checks below could not fail
    assert {name for name in LIKE_BEFORE if during[name] != before[name]} >= {"optimizer", "gc", "finalizers", "agents"}
    assert again == {"state": "recorded", "recorder": os.getpid()}
    after = program.state()
    assert {name: after[name] for name in LIKE_BEFORE} == {name: before[name] for name in LIKE_BEFORE}
    assert after["patched"] == []
    assert program.said == ""


def test_attaching_does_not_change_training_output(started, tmp_path):
    alone = started("alone", steps=400)
    attached = started("attached", steps=400, gated=True)
    attached.wait_for((attached.folder / "waiting").exists)
    injector = Injector(attached.pid)
    injector.ask(begin(tmp_path / "rings"), 120.0)
    (attached.folder / "go").touch()
    try:
        attached.wait_for(lambda: len(attached.lines) > 30)
        injector.ask(END, 120.0)
    except ProcessLookupError:  # the program ended first, attached until its end
        pass
    injector.close()

    assert alone.process.wait() == attached.process.wait() == 0

    assert attached.lines == alone.lines
    assert len(alone.lines) == 401
    assert attached.said == ""
    assert rings(tmp_path / "rings")


def test_hooks_are_removed_after_recorder_dies(started, tmp_path):
    program = started()
    program.trains()
    before = program.state()
    injector = Injector(program.pid)
    gone = os.fork()
    if gone == 0:
        time.sleep(PATIENCE)
        os._exit(0)
    injector.ask({"act": "begin", "settings": settings(tmp_path / "rings", gone)}, 120.0)
    program.wait_for(lambda: rings(tmp_path / "rings"))
    injector.close()

    os.kill(gone, 9)
    os.waitpid(gone, 0)

    program.wait_for(lambda: program.state()["agents"] == 0)
    after = program.state()
    assert {name: after[name] for name in LIKE_BEFORE} == {name: before[name] for name in LIKE_BEFORE}


PATIENCE = 600


@pytest.mark.slow
@pytest.mark.usefixtures("asked")
def test_attaching_fifty_times_leaks_nothing(started, tmp_path):
    program = started()
    program.trains()
    cycles(program, tmp_path, 3)  # loads what is loaded only once
    before = program.state()

    cycles(program, tmp_path, 50)

    after = program.state()
    assert {name: after[name] for name in LIKE_BEFORE} == {name: before[name] for name in LIKE_BEFORE}
    assert after["loaded"] == before["loaded"]
    assert after["rss"] - before["rss"] < 8 << 20
    assert program.said == ""


def busy(code):
    """Start a Python program that is in native code and does not respond."""
    import subprocess

    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)


@pytest.mark.process
def test_timeout_in_native_code_leaves_nothing_behind():
    program = busy(
        "import ctypes, os, sys; print(flush=True); ctypes.CDLL(None).poll(0, 0, 3000); print(sorted(sys.modules))"
    )
    program.stdout.readline()
    injector = Injector(program.pid)

    with pytest.raises(TimeoutError):
        injector.ask(END, 0.2)
    injector.close()

    output, _ = program.communicate()
    assert program.returncode == 0
    assert b"profile_train" not in output


@pytest.mark.process
def test_remote_call_that_never_returns_is_aborted(monkeypatch):
    import ctypes

    program = busy("import time\nprint(flush=True)\nfor _ in range(300): time.sleep(0.01)\nprint('done')")
    program.stdout.readline()
    found = elf.addresses(program.pid)
    pause = ctypes.cast(ctypes.CDLL(None).pause, ctypes.c_void_p).value
    offset = pause - elf.addresses(os.getpid())["mmap"]
    monkeypatch.setattr(ptrace, "PATIENCE", 0.3)

    with pytest.raises(TimeoutError), ptrace.Thread(program.pid) as thread:
        thread.call(found["mmap"] + offset)

    output, _ = program.communicate()
    assert (program.returncode, output.strip()) == (0, b"done")


@pytest.mark.slow
@pytest.mark.usefixtures("asked")
@pytest.mark.skipif(not gdb.is_there(), reason="gdb is not installed")
def test_gdb_also_installs_and_removes_hooks(started, tmp_path, monkeypatch):
    monkeypatch.setattr(inject.ptrace, "is_possible", lambda pid: False)
    program = started()
    program.trains()

    cycles(program, tmp_path, 1)

    assert program.state()["patched"] == []
    assert program.said == ""


@pytest.mark.process
def test_python_3_14_uses_remote_exec(monkeypatch):
    """Python 3.14 is not available here: this process runs what it would run."""
    program = busy("import sys; sys.stdin.read()")
    ran = []
    monkeypatch.setattr(inject, "_versions", lambda pid: {f"python3.{sys.version_info.minor}"})

    def remote_exec(pid, script):
        ran.append(pid)
        exec(compile(Path(script).read_text(), script, "exec"), {})

    monkeypatch.setattr(sys, "remote_exec", remote_exec, raising=False)
    injector = Injector(program.pid)
    try:
        assert injector.ask(END, 10.0) == {"state": "out"}
    finally:
        injector.close()
        program.kill()
        program.communicate()
        for name in [name for name in sys.modules if name.startswith("_profile_train_agent")]:
            del sys.modules[name]
    assert ran == [program.pid]


@pytest.mark.process
def test_error_repeats_if_remote_exec_and_symbol_lookup_fail(monkeypatch):
    program = busy("import sys; sys.stdin.read()")

    def refuse(pid, script):
        raise RuntimeError("Remote debugging is not enabled in the remote process")

    def addresses(pid):
        raise ProfilerError("no functions", "")

    monkeypatch.setattr(inject, "_versions", lambda pid: {f"python3.{sys.version_info.minor}"})
    monkeypatch.setattr(sys, "remote_exec", refuse, raising=False)
    monkeypatch.setattr(elf, "addresses", addresses)
    injector = Injector(program.pid)
    try:
        for _ in range(2):  # the second order removes what the first may have left
            with pytest.raises(ProfilerError, match="no functions"):
                injector.ask(END, 1.0)
    finally:
        injector.close()
        program.kill()
        program.communicate()
