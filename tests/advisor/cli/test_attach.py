"""`profile-train attach` on programs that were started without it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from programs import COMMAND, PATIENCE, ROOT

from advisor.cli import main
from profiler.attach import recording, rights
from profiler.errors import ProfilerError
from profiler.launch import VARIABLE
from profiler.recorder.stacks import sampler


def may_trace():
    scope = Path("/proc/sys/kernel/yama/ptrace_scope")
    return os.uname().machine == "x86_64" and (
        not scope.exists() or scope.read_text().strip() == "0" or not os.getuid()
    )


attaches = pytest.mark.skipif(not may_trace(), reason="this machine does not allow attaching to a process")


@pytest.fixture
def sample(tmp_path):
    """Start samples/input_starved.py and wait until it trains."""
    with (tmp_path / "stdout").open("w") as output, (tmp_path / "stderr").open("w") as errors:
        program = subprocess.Popen(
            [sys.executable, ROOT / "samples/input_starved.py", "--steps", "100000"], stdout=output, stderr=errors
        )
    deadline = time.monotonic() + PATIENCE
    while not (tmp_path / "stdout").stat().st_size:
        assert time.monotonic() < deadline
        assert program.poll() is None
        time.sleep(0.05)
    yield program
    program.kill()
    program.wait()


def attach(*words, folder):
    return [*COMMAND, "attach", *map(str, words), "--out", str(folder)]


def wait_until_recorded(folder, recorder):
    deadline = time.monotonic() + PATIENCE
    while not (folder / "recording.json").exists():
        assert time.monotonic() < deadline
        assert recorder.poll() is None
        time.sleep(0.02)


@attaches
@pytest.mark.process
def test_attach_gives_same_first_advice_as_run(sample, tmp_path):
    done = subprocess.run(
        attach(sample.pid, "--steps", 60, "--no-windows", folder=tmp_path / "run"),
        capture_output=True,
        text=True,
        env={**os.environ, sampler.OFF: "1"},
    )

    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "run/result.json").read_text())
    assert result["advice"][0]["rule"] == "data-workers-zero"
    lines = {(Path(line["file"]).name, line["phase"]) for line in result["code"]["step"]}
    assert ("input_starved.py", "data_wait") in lines
    assert str(tmp_path / "run/report.html") in "".join(done.stderr.split())
    assert sample.poll() is None
    assert (tmp_path / "stderr").read_text() == ""
    assert all(line.startswith("step ") for line in (tmp_path / "stdout").read_text().splitlines()[:-1])


@attaches
@pytest.mark.process
def test_control_c_ends_the_recording_and_a_second_recorder_is_refused(sample, tmp_path, capsys):
    recorder = subprocess.Popen(
        attach(sample.pid, "--no-report", folder=tmp_path / "run"),
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    wait_until_recorded(tmp_path / "run", recorder)

    assert main(["attach", str(sample.pid), "--no-report", "--out", str(tmp_path / "other")]) == 1
    refused = capsys.readouterr().err
    recorder.send_signal(signal.SIGINT)
    _, said = recorder.communicate()

    assert str(recorder.pid) in refused
    assert not (tmp_path / "other").exists()
    assert recorder.returncode == 0, said
    assert sample.poll() is None
    assert list((tmp_path / "run").glob("run-*.db"))


@attaches
@pytest.mark.process
def test_program_that_exits_while_attached_is_not_an_error(sample, tmp_path):
    recorder = subprocess.Popen(attach(sample.pid, "--no-report", folder=tmp_path / "run"), stderr=subprocess.PIPE)
    wait_until_recorded(tmp_path / "run", recorder)

    sample.kill()
    sample.wait()
    _, said = recorder.communicate()

    assert recorder.returncode == 0, said


@pytest.mark.process
def test_no_inject_records_from_outside_and_reports_what_is_missing(tmp_path, capsys):
    program = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    try:
        status = main(["attach", str(program.pid), "--no-inject", "--duration", "0.5s", "--out", str(tmp_path / "run")])
    finally:
        program.communicate()

    assert status == 0
    result = json.loads((tmp_path / "run/result.json").read_text())
    assert result["advice"] == []
    assert "attach" in {problem["source"] for problem in result["environment"]["problems"]}
    assert str(program.pid) in capsys.readouterr().err


@pytest.mark.process
def test_recorder_that_cannot_start_leaves_no_files(tmp_path, monkeypatch, capsys):
    def full(*_args, **_options):
        raise ProfilerError("The disk is full.", "Make room.")

    made = []
    rings = recording.run_folder.make_rings
    monkeypatch.setattr(recording.run_folder, "make_rings", lambda *words: made.append(rings(*words)) or made[-1])
    monkeypatch.setattr(recording, "Recorder", full)
    program = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    try:
        status = main(["attach", str(program.pid), "--no-inject", "--out", str(tmp_path / "run")])
    finally:
        program.communicate()

    assert status == 1
    assert "The disk is full" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
    assert [folder for folder in made if folder.exists()] == []


@pytest.mark.parametrize(
    ("code", "environment", "message"),
    [
        ("import sys; sys.stdin.read()", {}, "has not loaded torch"),
        ("import sys; sys.stdin.read()", {VARIABLE: "{}"}, "was started by profile-train"),
        ("import os, signal, sys; os.kill(os.getpid(), signal.SIGSTOP); sys.stdin.read()", {}, "is stopped"),
    ],
)
@pytest.mark.process
def test_reports_why_process_cannot_be_attached_and_leaves_no_files(code, environment, message, tmp_path, capsys):
    program = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, env={**os.environ, **environment})
    deadline, about = time.monotonic() + PATIENCE, Path(f"/proc/{program.pid}")
    # A process has its environment only a moment after its start.
    while not (about / "environ").read_bytes() or (
        "STOP" in code and "T" not in (about / "stat").read_text().split()[2]
    ):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    try:
        status = main(["attach", str(program.pid), "--out", str(tmp_path / "run")])
    finally:
        program.send_signal(signal.SIGCONT)
        program.communicate()

    assert status == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_no_such_process(capsys):
    assert main(["attach", "4194304"]) == 1
    assert "no process 4194304" in capsys.readouterr().err


@pytest.mark.parametrize(("time_", "status"), [("0s", 2), ("soon", 2), ("5 parsecs", 2)])
def test_invalid_duration_is_usage_error(time_, status):
    assert main(["attach", "1", "--duration", time_]) == status


def proc(folder, *, tracer=0, scope=None, container=False):
    """Write the parts of /proc that the refusal reads."""
    (folder / "proc/7").mkdir(parents=True)
    (folder / "proc/7/status").write_text(f"TracerPid:\t{tracer}\n")
    if scope is not None:
        (folder / "proc/sys/kernel/yama").mkdir(parents=True)
        (folder / "proc/sys/kernel/yama/ptrace_scope").write_text(f"{scope}\n")
    if container:
        (folder / ".dockerenv").touch()
    return folder / "proc"


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ({"tracer": 9}, "process 9 (a debugger or strace)"),
        ({"scope": 3}, "until the next boot"),
        ({"scope": 1}, "sysctl kernel.yama.ptrace_scope=0"),
        ({"container": True}, "--cap-add SYS_PTRACE"),
        ({"container": True}, 'add: ["SYS_PTRACE"]'),
        ({}, "security module"),
    ],
)
def test_refusal_says_why_kernel_denies_ptrace(what, message, tmp_path, monkeypatch):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    error = rights.refusal(7, proc(tmp_path, **what))

    assert message in error.message
    assert "--no-inject 7" in error.remedy


@pytest.mark.parametrize(("name", "trains"), [("systemd", False), ("python3.11", True), ("pt_main_thread", True)])
def test_container_pid_1_gets_ptrace_advice_only_if_it_trains(name, trains, tmp_path):
    (tmp_path / "proc/1").mkdir(parents=True)
    (tmp_path / "proc/1/comm").write_text(f"{name}\n")

    assert ("SYS_PTRACE" in rights.refusal(1, proc(tmp_path, container=True)).message) is trains


@pytest.mark.process
def test_process_of_another_user_suggests_sudo(tmp_path, monkeypatch, capsys):
    program = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    monkeypatch.setattr(os, "geteuid", lambda: 1 + os.getuid())
    try:
        assert main(["attach", str(program.pid), "--out", str(tmp_path / "run")]) == 1
    finally:
        program.communicate()

    assert f"sudo -u '#{os.getuid()}' profile-train attach {program.pid}" in capsys.readouterr().err
