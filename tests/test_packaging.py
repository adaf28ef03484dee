"""The package: the wheel's files, and that they work without a checkout."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from programs import PATIENCE
from traces_made import two_ranks

ROOT = Path(__file__).resolve().parent.parent

pytestmark = pytest.mark.process

TRAINING = """
import torch
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(30):
    optimizer.zero_grad()
    model(torch.randn(4, 8)).square().mean().backward()
    optimizer.step()
print("trained")
"""


def run(*command: object, cwd: Path) -> str:
    """Run a command and return its stdout; a failure shows stderr. Nothing of this checkout is on the path."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the sdist, and the wheel from it; return their folder."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT, cwd=folder)
    return folder


@pytest.fixture(scope="module")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the bin folder of an environment that has the wheel, what it requires, pytest, and no torch.

    The packages are links to those of this environment.
    """
    home = tmp_path_factory.mktemp("environment")
    venv.create(home, symlinks=True)
    python = home / "bin" / "python"
    (wheel,) = built.glob("*.whl")
    options = ["--no-deps", "--no-index", "--ignore-installed"]
    run(sys.executable, "-m", "pip", "--python", python, "install", *options, wheel, cwd=home)
    site = Path(sysconfig.get_path("purelib", "venv", {"base": str(home), "platbase": str(home)}))
    (ours,) = metadata.distributions(path=[str(site)], name="profile-train")
    for package in required([*(ours.requires or ()), "pytest"]):
        for name in {file.parts[0] for file in package.files or ()} - {"..", "__pycache__"}:
            (site / name).symlink_to(package.locate_file(name))
    return home / "bin"


def required(requirements: list[str]) -> list[metadata.Distribution]:
    """Return the distributions of this environment that these require, directly or indirectly."""
    found = {}
    waiting = [Requirement(one) for one in requirements]
    while waiting:
        one = waiting.pop()
        if one.name not in found and (one.marker is None or one.marker.evaluate({"extra": ""})):
            found[one.name] = metadata.distribution(one.name)
            waiting += map(Requirement, found[one.name].requires or ())
    return list(found.values())


# Other Pythons for the tool only, without torch; the program trains on this environment's.
TOOL_PYTHONS = [path for path in os.environ.get("PROFILE_TRAIN_TOOL_PYTHONS", "").split(os.pathsep) if path]


def sources(folder: str, pattern: str) -> set[str]:
    found = (ROOT / folder).rglob(pattern)
    return {path.relative_to(ROOT).as_posix() for path in found if path.is_file() and "__pycache__" not in path.parts}


def test_wheel_contains_only_the_packages_and_templates(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    code = {
        name for folder in ("profiler", "advisor") for kind in ("*.py", "py.typed") for name in sources(folder, kind)
    }
    code = {name.removeprefix("advisor/entry/") for name in code}
    templates = {f"advisor/{name}" for name in sources("templates", "*")}
    assert {name for name in names if not name.startswith("advisor/templates/")} == code
    assert {name for name in names if name.startswith("advisor/templates/")} == templates


def test_sdist_contains_documents_tests_and_samples(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"README.md", "LICENSE", "CHANGELOG.md", "pyproject.toml", "tests/test_packaging.py"} <= names
    assert sources("samples", "*.py") | sources("templates", "*") <= names


def test_installed_command_prints_version_and_rules(installed: Path, tmp_path: Path) -> None:
    with (ROOT / "pyproject.toml").open() as project:
        version = next(line.split('"')[1] for line in project if line.startswith("version"))
    assert version in run(installed / "profile-train", "--version", cwd=tmp_path)
    assert "optimizer-fused" in run(installed / "profile-train", "rules", cwd=tmp_path)


def test_pytest_fixture_is_installed_without_importing_our_packages(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "import sys\n\n"
        "def test_it(assert_training_performance):\n"
        "    assert not {'advisor', 'profiler'} & set(sys.modules)\n"
    )
    assert "1 passed" in run(installed / "python", "-m", "pytest", "-p", "no:cacheprovider", "test_it.py", cwd=tmp_path)


def test_installed_command_works_without_torch(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The way into the program and the templates are files that only the wheel could have brought."""
    ask = "import advisor, importlib.util as util; print(advisor.__file__); print(util.find_spec('torch'))"
    home, torch = run(installed / "python", "-c", ask, cwd=tmp_path).splitlines()
    assert Path(home).is_relative_to(installed.parent)
    assert torch == "None"
    (tmp_path / "train.py").write_text(TRAINING)
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    monkeypatch.setenv("PATH", f"{sys.prefix}/bin{os.pathsep}{os.environ['PATH']}")
    assert run(installed / "profile-train", "--out", "run", "train.py", cwd=tmp_path) == "trained\n"
    assert json.loads((tmp_path / "run" / "result.json").read_text())["steps"]["count"] == 30
    two_ranks(tmp_path)
    for words in ("report --out reports run", "report --out traces trace_0.json.gz trace_1.json.gz"):
        run(installed / "profile-train", *words.split(), cwd=tmp_path)
    assert "<html" in (tmp_path / "reports" / "report.html").read_text()
    assert json.loads((tmp_path / "traces" / "result.json").read_text())["steps"]["count"] == 2
    shutil.copytree(tmp_path / "run", tmp_path / "again")
    for words in (
        "compare run again",
        "export --to csv run",
        "plan --params 1.5B --gpu-memory 24GB",
        "explain data-collate",
    ):
        run(installed / "profile-train", *words.split(), cwd=tmp_path)


def test_error_names_the_python_that_lacks_torch(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAINING)
    environment = {"PATH": str(installed), "HOME": str(tmp_path)}
    command = [installed / "profile-train", "--no-report", "train.py"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 1
    assert str(installed / "python") in done.stderr


@pytest.mark.skipif(not TOOL_PYTHONS, reason="PROFILE_TRAIN_TOOL_PYTHONS lists no other Python")
@pytest.mark.parametrize("python", TOOL_PYTHONS or ["none"])
def test_installed_tool_works_on_another_python(
    python: str, built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(python, "-m", "venv", tmp_path / "tool", cwd=tmp_path)
    (wheel,) = built.glob("*.whl")
    tool = tmp_path / "tool" / "bin"
    run(tool / "pip", "install", "-q", wheel, cwd=tmp_path)
    (tmp_path / "train.py").write_text(TRAINING)
    monkeypatch.setenv("VIRTUAL_ENV", sys.prefix)
    assert run(tool / "profile-train", "--out", "run", "train.py", cwd=tmp_path) == "trained\n"
    shutil.copytree(tmp_path / "run", tmp_path / "again")
    for arguments in ("report run", "compare run again", "plan --params 1.5B --gpu-memory 24GB", "rules"):
        run(tool / "profile-train", *arguments.split(), cwd=tmp_path)
    assert "<html" in (tmp_path / "run" / "report.html").read_text()
