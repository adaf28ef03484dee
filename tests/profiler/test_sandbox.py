"""A real process in the sandbox: only that process sees what it writes."""

import ctypes
import errno
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from programs import PATIENCE, ROOT

from profiler.errors import ProfilerError

WRITES = """
import importlib.machinery, importlib.util, os, shutil, sys, types
from pathlib import Path

root, project, kept, scratch = map(Path, sys.argv[1:])
package = types.ModuleType("profiler")  # its face imports more than any user may read here
package.__path__ = [str(root / "profiler")]
sys.modules["profiler"] = package
from profiler import sandbox

os.chdir(project)
sandbox.enter(scratch, [project], [kept])
Path("weights").write_text("changed")
Path("new").write_text("new")
shutil.rmtree("logs")
Path("logs").mkdir()
Path("logs/other").write_text("other")
os.rename("data", "moved")
(kept / "result").write_text("kept")
print(sorted(path.name for path in project.rglob("*")))
for elsewhere in (project.parent / "elsewhere", Path.home() / "elsewhere"):
    try:
        elsewhere.write_text("")
    except OSError as error:
        print(error.strerror)
Path("/dev/null").write_text("x")
"""

REACHES = """
import ctypes, os, socket, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from profiler import sandbox
project, kept, scratch = map(Path, sys.argv[2:5])
abstract, port, shared, key = sys.argv[5], int(sys.argv[6]), Path(sys.argv[7]), int(sys.argv[8])
os.chdir(project)
sandbox.enter(scratch, [project], [kept], network=len(sys.argv) > 9)
def reached(address, family):
    with socket.socket(family) as one:
        return one.connect_ex(address) == 0
print(reached("\\0" + abstract, socket.AF_UNIX), reached(("127.0.0.1", port), socket.AF_INET))
print(shared.exists(), ctypes.CDLL(None).shmget(key, 4096, 0) != -1)
with socket.socket() as own:
    own.bind(("127.0.0.1", 0))
    own.listen()
    print(reached(own.getsockname(), socket.AF_INET))
Path("/dev/shm/own").write_text("x")
"""


SIGNALS = """
import os, signal, subprocess, sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from profiler import sandbox
outside, project, kept, scratch = int(sys.argv[2]), *map(Path, sys.argv[3:6])
os.chdir(project)
sandbox.enter(scratch, [project], [kept])
def refused(act, *arguments):
    try:
        act(*arguments)
    except OSError as error:
        return type(error).__name__
print(refused(os.kill, outside, signal.SIGKILL), refused(os.setpriority, os.PRIO_PROCESS, outside, 19))
machine, other = Path("/proc/sys/kernel/tainted"), Path(f"/proc/{outside}/oom_score_adj")
print(refused(other.write_text, "777"), refused(machine.write_text, "0"))
print(sorted(int(name) for name in os.listdir("/proc") if name.isdigit()) == [1, os.getpid()])
orphan = "import subprocess; print(subprocess.Popen(['sleep', '0.01'], stdout=subprocess.DEVNULL).pid)"
pid = int(subprocess.check_output([sys.executable, "-c", orphan]))
for _ in range(6000):
    if Path(f"/proc/{pid}").exists():
        time.sleep(0.01)
signal.signal(signal.SIGTERM, lambda *_: os._exit(7))
subprocess.Popen(["sleep", "1000"], start_new_session=True)
print("ready", Path(f"/proc/{pid}").exists(), flush=True)
time.sleep(1000)
"""


DESERTED = """
import os, signal, sys, time
sys.path.insert(0, sys.argv[1])
from profiler import sandbox
project, kept, scratch = map(os.path.abspath, sys.argv[2:])
os.chdir(project)
sandbox.GRACE = 0.1
inside, ready = os.pipe()
if os.fork():
    os.close(ready)
    os.read(inside, 1)
    os._exit(0)
from pathlib import Path
sandbox.enter(Path(scratch), [Path(project)], [Path(kept)])
signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.write(ready, b"x")
time.sleep(1000)
"""


SHARES = """
import os, shutil, sys, types
from pathlib import Path
root, project, kept, scratch = map(Path, sys.argv[1:])
package = types.ModuleType("profiler")
package.__path__ = [str(root / "profiler")]
sys.modules["profiler"] = package
from profiler import sandbox
os.chdir(project)
outside = os.open("logs", os.O_RDONLY | os.O_DIRECTORY)
sandbox.enter(scratch, [project], [kept])
for name in ("weights", "logs/old"):
    with open(name, "a") as file:
        file.write(" changed")
    print(Path(name).read_text())
for name in ("new", "logs/new"):
    Path(name).write_text("new")
os.replace("logs/new", "logs/data")
with open(os.open("old", os.O_RDONLY, dir_fd=outside)) as file:
    print(file.read())
"""

COLLEAGUE, GROUP = 65533, 65532
NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
MEMBER = ("setpriv", "--reuid=65531", "--regid=65531", f"--groups={GROUP}")
AS_USER = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("setpriv") or not Path("/usr/bin/python3").exists(),
    reason="needs root, to switch to another user, and a Python that everyone may run",
)


@pytest.fixture
def folders():
    """Yield a project, a writable folder in it, and a scratch folder, all of them readable by everyone."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as base:
        os.chmod(base, 0o777)
        project, scratch = Path(base) / "project, with: all", Path(base) / "scratch"
        (project / "logs").mkdir(parents=True)
        (project / "runs").mkdir()
        scratch.mkdir()
        for name in ("weights", "data", "logs/old"):
            (project / name).write_text(name)
        yield project, project / "runs", scratch


def check(done, project):
    assert done.returncode == 0, done.stderr
    seen, *refused = done.stdout.splitlines()
    assert seen == str(sorted(["weights", "new", "logs", "other", "moved", "runs", "result"]))
    assert refused == [os.strerror(errno.EROFS)] * 2
    assert sorted(path.name for path in project.rglob("*")) == ["data", "logs", "old", "result", "runs", "weights"]
    assert (project / "weights").read_text() == "weights"
    assert (project / "runs/result").read_text() == "kept"


@pytest.mark.process
def test_writes_are_visible_only_inside_sandbox(folders):
    project, kept, scratch = folders
    done = subprocess.run(
        [sys.executable, "-c", WRITES, ROOT, project, kept, scratch],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    check(done, project)


@pytest.mark.process
@pytest.mark.parametrize("network", [False, True])
def test_outside_sockets_need_network_and_shared_memory_is_isolated(folders, network):
    key, libc, name = 0x70740000 + os.getpid() % 65536, ctypes.CDLL(None), f"profile-train-test-{os.getpid()}"
    memory = libc.shmget(key, 4096, 0o1600)
    with (
        socket.socket(socket.AF_UNIX) as abstract,
        socket.socket() as port,
        tempfile.NamedTemporaryFile(dir="/dev/shm") as shared,
    ):
        abstract.bind(f"\0{name}")
        abstract.listen()
        port.bind(("127.0.0.1", 0))
        port.listen()
        outside = [name, str(port.getsockname()[1]), shared.name, str(key), *(["--network"] if network else [])]
        command = [sys.executable, "-c", REACHES, ROOT, *folders, *outside]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    libc.shmctl(memory, 0, None)

    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(network), str(network), "False", "False", "True"]
    assert not Path("/dev/shm/own").exists()


@pytest.mark.process
def test_processes_outside_are_out_of_reach(folders):
    """Orphans are also reaped, and a signal and the exit status are passed on."""
    with subprocess.Popen(["sleep", "1000"]) as outside:
        command = [sys.executable, "-c", SIGNALS, ROOT, str(outside.pid), *folders]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            lines = [process.stdout.readline().split() for _ in range(4)]
            process.terminate()
            assert process.wait(PATIENCE) == 7
            assert process.stdout.read() == "", "what was left running has ended and closed it"
        assert outside.poll() is None
        assert os.getpriority(os.PRIO_PROCESS, outside.pid) == os.getpriority(os.PRIO_PROCESS, 0)
        outside.kill()

    assert lines[0] == ["ProcessLookupError"] * 2
    assert lines[1][0] == "FileNotFoundError"
    assert lines[1][1] in ("OSError", "PermissionError")
    assert lines[2:] == [["True"], ["ready", "False"]]


@pytest.mark.process
def test_abandoned_sandbox_ends_although_it_ignores_sigterm(folders):
    command = [sys.executable, "-c", DESERTED, ROOT, *folders]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)  # until end of file
    assert (done.returncode, done.stderr) == (0, "")


def run_as(who, code, project, kept, scratch, *before):
    """Run the code with a Python that everyone may run and a copy of the package that everyone may read."""
    ours = scratch.parent / "ours"
    shutil.copytree(ROOT / "profiler", ours / "profiler", ignore=shutil.ignore_patterns("__pycache__"))
    done = subprocess.run(
        [*before, *who, "/usr/bin/python3", "-S", "-c", code, ours, project, kept, scratch],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        cwd="/",
        env={"HOME": "/", "PATH": os.environ["PATH"]},
    )
    if done.returncode and subprocess.run([*who, "unshare", "--user", "--mount", "true"], check=False).returncode:
        pytest.skip("unprivileged users cannot create namespaces here")
    return done


@AS_USER
@pytest.mark.process
def test_sandbox_works_for_unprivileged_users(folders):
    for path in (folders[-1].parent, *folders[-1].parent.rglob("*")):
        os.chown(path, 65534, 65534)
    check(run_as(NOBODY, WRITES, *folders), folders[0])


@AS_USER
@pytest.mark.process
def test_group_writable_folder_is_writable_in_sandbox(folders):
    project, kept, scratch = folders
    for path in (project, *project.rglob("*")):
        os.chown(path, COLLEAGUE, GROUP)
        path.chmod(0o2775 if path.is_dir() else 0o664)
    for path in (scratch, kept):
        os.chown(path, 65531, 65531)
    done = run_as(MEMBER, SHARES, *folders)

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["weights changed", "logs/old changed", "logs/old"]
    assert sorted(path.name for path in project.rglob("*")) == ["data", "logs", "old", "runs", "weights"]
    assert (project / "logs/old").read_text() == "logs/old"


MOUNTS = ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs none "$0" && echo -n logs/old > "$0/old" && exec "$@"')


@AS_USER
@pytest.mark.skipif(not shutil.which("unshare"), reason="needs unshare, to mount in its own namespace")
@pytest.mark.process
def test_nested_mount_works_for_root_and_is_refused_by_name_for_users(folders):
    project, kept, scratch = folders
    for path in (scratch, kept):
        os.chown(path, 65531, 65531)
    command = [*MOUNTS, project / "logs", sys.executable, "-c", SHARES, ROOT, *folders]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    refused = run_as(MEMBER, SHARES, *folders, *MOUNTS, project / "logs")

    assert done.stdout.splitlines() == ["weights changed", "logs/old changed", "logs/old"], done.stderr
    assert str(project / "logs") in refused.stderr.splitlines()[-1]


@pytest.mark.process
def test_scratch_folder_inside_covered_folder_is_refused(folders, monkeypatch):
    project, kept, _ = folders
    code = WRITES.replace("[kept])", "[])")
    done = subprocess.run(
        [sys.executable, "-c", code, ROOT, project, kept, kept],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    raised = done.stderr.splitlines()[-1]
    assert raised.startswith(f"{ProfilerError.__module__}.{ProfilerError.__name__}: ")
    assert str(project) in raised
