"""A program with its own Python: another version, another environment, options that keep us out."""

import json
import os
import re
import shutil
import subprocess
import sys
import zipapp
from importlib.util import find_spec
from pathlib import Path

import pytest
from programs import ROOT, TORCH

from profiler.launch import BOOTSTRAP

SEEN = """
import json, os, sys
try:
    import profiler
    whose = profiler.__file__
except ImportError as error:
    whose = str(error)
print(json.dumps({
    "path": sys.path, "flags": list(sys.flags), "argv": sys.argv, "prefix": sys.prefix, "executable": sys.executable,
    "modules": sorted(sys.modules), "environment": dict(os.environ),
    "meta_path": [str(type(each)) for each in sys.meta_path],
    "profiler": whose,
}))
"""
TRAIN = (
    TORCH
    + """
import sys, torch
layer = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
for _ in range(3):
    layer(torch.ones(1, 1)).sum().backward()
    optimizer.step()
print(sys.argv[1:], sys.path)
"""
)


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory):
    """Return an environment without the profiler, with this environment's torch."""
    folder = tmp_path_factory.mktemp("elsewhere") / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "--symlinks", folder], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "torch.pth").write_text(str(Path(find_spec("torch").origin).parents[1]))
    return folder


def test_only_the_agent_and_its_variables_are_added_to_the_program(script, elsewhere, start, start_profiled):
    """The program has its own environment, activated as venv and conda do it, and its own paths."""
    program = script(SEEN)
    script("", "mine/profiler.py")
    python = elsewhere / "bin" / "python"
    for env in (
        {"VIRTUAL_ENV": str(elsewhere)},
        {"CONDA_PREFIX": str(elsewhere), "CONDA_DEFAULT_ENV": "train"},
        {"VIRTUAL_ENV": str(elsewhere), "PYTHONPATH": str(program.parent / "mine")},
        {"VIRTUAL_ENV": str(elsewhere), "PYTHONSAFEPATH": "1", "PYTHONWARNINGS": "error", "PYTHONOPTIMIZE": "1"},
    ):
        ran = start(python, program, env=env).finish(), start_profiled(program, env=env).finish()
        assert [each.status for each in ran] == [0, 0], ran[1].err.decode()
        plain, profiled = (json.loads(each.out) for each in ran)
        ours = profiled.pop("modules"), profiled.pop("environment"), profiled.pop("meta_path")
        its = plain.pop("modules"), plain.pop("environment"), plain.pop("meta_path")

        assert profiled == plain
        added = {name.partition(".")[0] for name in set(ours[0]) - set(its[0])}
        assert added == {"_profile_train_agent", "__future__"}
        assert set(its[0]) <= set(ours[0])
        changed = {name for name in ours[1].keys() | its[1].keys() if ours[1].get(name) != its[1].get(name)}
        assert changed == {"PYTHONPATH", "PROFILE_TRAIN_AGENT"}
        assert ours[1]["PYTHONPATH"].split(os.pathsep) == [str(BOOTSTRAP), *filter(None, [env.get("PYTHONPATH")])]
        assert sorted(ours[2]) == sorted(["<class '_profile_train_agent.importing._Watch'>", *its[2]])
        assert ("mine" in profiled["profiler"]) == ("PYTHONPATH" in env)


def test_a_program_of_another_environment_is_recorded(script, elsewhere, start, start_profiled):
    program = script(TRAIN)
    plain = start(elsewhere / "bin" / "python", program).finish()
    profiled = start_profiled(program, env={"VIRTUAL_ENV": str(elsewhere)}).finish()

    assert (plain.status, plain.out, plain.err) == (profiled.status, profiled.out, profiled.err)
    assert len(profiled.steps) == 3


@pytest.mark.parametrize("option", ["-I", "-E", "-S", "-sE"])
def test_python_options_that_prevent_recording_are_reported(script, run_profiled, option):
    """They may be anywhere, even in a script that another script calls: the report says what they do."""
    program = script("print('trains')")
    launcher = script(f"python {option} {program}", "run.sh")
    ran = run_profiled("sh", launcher, options=("--no-windows",))

    assert (ran.status, ran.out) == (0, b"trains\n")
    assert {"-I", "-E", "-S"} <= set(re.findall(r"-[IES]\b", ran.err.decode()))
    assert ran.ranks == []


@pytest.mark.parametrize("options", [("-s",), ("-P",), ("-B", "-O")], ids=" ".join)
def test_other_python_options_do_not_prevent_recording(script, run_profiled, options):
    ran = run_profiled("python", *options, script(TRAIN))

    assert (ran.status, ran.err) == (0, b"")
    assert len(ran.steps) == 3


def test_a_zipapp_is_run(tmp_path, start, start_profiled):
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "__main__.py").write_text(TRAIN)
    zipapp.create_archive(tmp_path / "app", tmp_path / "app.pyz")
    plain = start("python", "app.pyz", "a").finish()
    profiled = start_profiled("app.pyz", "a").finish()

    assert (plain.status, plain.out, plain.err) == (profiled.status, profiled.out, profiled.err)
    assert len(profiled.steps) == 3


def test_interactive_python_session_is_recorded(start, start_profiled):
    """`python -i` reads its standard input line by line, and runs PYTHONSTARTUP first."""
    typed = TRAIN.replace("    optimizer.step()\n", "    optimizer.step()\n\n").encode()
    plain = start("python", "-i", "-q", stdin=typed).finish()
    profiled = start_profiled("python", "-i", "-q", stdin=typed).finish()

    assert (plain.status, plain.out, plain.err) == (profiled.status, profiled.out, profiled.err)
    assert len(profiled.steps) == 3


@pytest.mark.parametrize("version", ["2.7", "3.6", "3.7", "3.8", "3.9", "3.10", "3.12", "3.13", "3.14"])
@pytest.mark.process
def test_other_python_versions_started_by_the_program_are_unchanged(script, tmp_path, version):
    """They inherit PYTHONPATH, whatever their version."""
    found = [*Path.home().glob(f".pyenv/versions/{version}.*/bin/python"), shutil.which(f"python{version}")]
    python = next(filter(None, found), None)
    if python is None:
        pytest.skip(f"Python {version} is not installed")
    script("import sys; sys.stdout.write('%s\\n' % __name__)", "site/sitecustomize.py")
    program = script("import sys; sys.stdout.write('%s %s %s' % (sys.path, sys.argv, 'sitecustomize' in sys.modules))")
    for path in (tmp_path / "none", tmp_path / "site"):
        paths = {"plain": f"{path}", "profiled": f"{BOOTSTRAP}{os.pathsep}{path}"}
        done = {
            name: subprocess.run(
                [python, "-B", program],
                env={"PYTHONPATH": value, "PROFILE_TRAIN_AGENT": '{"rings": "/nowhere"}'},
                capture_output=True,
                check=True,
            )
            for name, value in paths.items()
        }
        assert done["plain"].stdout == done["profiled"].stdout
        assert done["plain"].stderr == done["profiled"].stderr == b""


@pytest.mark.parametrize("version", ["3.9", "3.10", "3.12", "3.13", "3.14"])
@pytest.mark.process
def test_all_agent_modules_can_be_imported(version):
    """Without torch: no module needs it at its top level."""
    found = [*Path.home().glob(f".pyenv/versions/{version}.*/bin/python"), shutil.which(f"python{version}")]
    python = next(filter(None, found), None)
    if python is None:
        pytest.skip(f"Python {version} is not installed")
    names = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in sorted((ROOT / "profiler" / "agent").rglob("*.py"))
        if path.name not in ("sitecustomize.py", "__init__.py")
    ]
    lines = "\n".join(f"import {name.replace('profiler.agent', 'agent')}" for name in names)
    subprocess.run([python, "-B", "-W", "error", "-c", lines], cwd=ROOT / "profiler", check=True)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("folder",), "'folder' is a folder without a __main__.py"),
        (("./folder",), "is a folder without a __main__.py"),
        (("run.sh",), "'run.sh' cannot be executed"),
        (("",), "nothing to run"),
        (("folder/train.py",), "no script 'folder/train.py'"),
    ],
)
def test_command_that_is_not_a_program_is_reported(script, tmp_path, run_profiled, words, sentence):
    (tmp_path / "folder").mkdir()
    script("#!/bin/sh\necho no", "run.sh")
    ran = run_profiled(*words)

    assert ran.status == 1
    assert sentence in ran.err.decode()
    assert len(ran.err.splitlines()) == 2
    assert not ran.folder.exists()


def test_folder_named_like_a_command_does_not_shadow_it(tmp_path, run_profiled):
    """For example a virtual environment in `env/`; there is no script of this name."""
    (tmp_path / "env").mkdir()

    assert run_profiled("env", "echo", "ran").out == b"ran\n"
