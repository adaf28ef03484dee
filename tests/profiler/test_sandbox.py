"""A process in the sandbox, really: what it writes is seen by it alone."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from programs import PATIENCE, ROOT

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


NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")


@pytest.fixture
def folders():
    """A project, a folder in it that may be written into, and a scratch folder, where anybody may look."""
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
    assert refused == ["Read-only file system"] * 2
    assert sorted(path.name for path in project.rglob("*")) == ["data", "logs", "old", "result", "runs", "weights"]
    assert (project / "weights").read_text() == "weights"
    assert (project / "runs/result").read_text() == "kept"


def test_what_a_process_writes_is_seen_by_it_alone(folders):
    project, kept, scratch = folders
    done = subprocess.run(
        [sys.executable, "-c", WRITES, ROOT, project, kept, scratch],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    check(done, project)


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="needs root, to become somebody else")
def test_users_have_it_too(folders):
    if not Path("/usr/bin/python3").exists():
        pytest.skip("no Python that everybody may run")
    project, kept, scratch = folders
    for path in (scratch.parent, *scratch.parent.rglob("*")):
        os.chown(path, 65534, 65534)
    ours = scratch.parent / "ours"
    shutil.copytree(ROOT / "profiler", ours / "profiler", ignore=shutil.ignore_patterns("__pycache__"))
    done = subprocess.run(
        [*NOBODY, "/usr/bin/python3", "-S", "-c", WRITES, ours, project, kept, scratch],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        cwd="/",
        env={"HOME": "/"},
    )
    if "has no sandbox" in done.stderr:
        pytest.skip("users have no namespaces here")
    check(done, project)


def test_a_scratch_folder_inside_what_it_covers_is_refused(folders, monkeypatch):
    project, kept, _ = folders
    code = WRITES.replace("[kept])", "[])")
    done = subprocess.run(
        [sys.executable, "-c", code, ROOT, project, kept, kept],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert "cannot be kept apart" in done.stderr
