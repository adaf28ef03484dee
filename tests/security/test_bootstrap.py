"""The variables that we set load no one else's files, and a process that may not read our files runs without them."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from programs import PATIENCE, ROOT, TORCH

from profiler import launch
from profiler.errors import ProfilerError

LOOP = """
{torch}
import os, sys, torch
{before}
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(10):
    model(torch.randn(2, 4)).sum().backward()
    optimizer.step()
print("trained", os.getuid())
"""


def test_pythonpath_contains_only_our_own_entry_folder(tmp_path, monkeypatch):
    monkeypatch.delenv("PYTHONPATH", raising=False)
    found = launch.variables({"rings": str(tmp_path), "budget": 0.01})

    assert found["PYTHONPATH"] == str(
        ROOT / "profiler" / "agent" / "bootstrap"
    )  # no empty part, which would mean the current folder
    assert [path.name for path in launch.BOOTSTRAP.glob("*.py")] == ["sitecustomize.py"]
    assert all(path.stat().st_mode & 0o022 == 0 for path in (ROOT / "profiler" / "agent").rglob("*.py"))
    assert set(found) == {"PYTHONPATH", launch.VARIABLE}
    assert json.loads(found[launch.VARIABLE]) == {"rings": str(tmp_path), "budget": 0.01}


@pytest.mark.process
def test_a_relative_path_to_our_installation_is_made_absolute(tmp_path):
    """Otherwise the bootstrap folder would be searched for in the program's current folder."""
    code = "import sys; sys.path[0] = '.'; from profiler import launch; print(launch.BOOTSTRAP)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=True
    )

    assert done.stdout.strip() == str(ROOT / "profiler" / "agent" / "bootstrap")


def test_installation_path_with_a_separator_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(launch, "BOOTSTRAP", Path("/opt/a:b/bootstrap"))

    with pytest.raises(ProfilerError, match="contains ':'"):
        launch.variables({"rings": str(tmp_path), "budget": 0.01})


def test_files_in_the_program_folder_do_not_shadow_ours(script, run_profiled, tmp_path):
    """Neither by the program's Python nor by the recorder's."""
    for name in ("_profile_train_agent", "profiler", "advisor", "wait"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'owned')!r}, 'w')")
    profiled = run_profiled(script(LOOP.format(torch=TORCH, before="")), options=("--no-windows",))

    assert profiled.status == 0, profiled.err
    assert not (tmp_path / "owned").exists()
    assert len(profiled.steps) == 10
    assert (profiled.folder / "report.html").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can switch to another user")
def test_program_that_drops_privileges_keeps_training(script, run_both):
    """From then on it cannot read its rings' folder, and possibly not the standard library."""
    # What torch would import for the first step, from folders that no other user may read.
    imports = "import torch._dynamo; __import__('torch.profiler', fromlist=['_cupti_monitor'])"
    drop = f"{imports}; os.chdir('/'); os.setgid(65534); os.setuid(65534)"
    plain, profiled = run_both(script(LOOP.format(torch=TORCH, before=drop)))

    assert (profiled.status, profiled.out) == (plain.status, plain.out) == (0, b"trained 65534\n")
    assert plain.err == b""
    assert b"Traceback" not in profiled.err


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="needs root and setpriv")
def test_child_process_of_another_user_runs_unchanged(script, run_both):
    """It inherits our variables, and may read neither our installation nor the rings."""
    child = "setpriv --reuid 65534 --regid 65534 --clear-groups /usr/bin/env python3 -S -c"
    if subprocess.run([*child.split(), "pass"], capture_output=True, timeout=PATIENCE, check=False).returncode:
        pytest.skip("no Python that every user may run")
    program = f"""
        import subprocess
        code = "import os, sys; print(os.getuid(), 'sitecustomize' in sys.modules)"
        done = subprocess.run([*{child.replace(" -S", "").split()!r}, code], capture_output=True, text=True, cwd="/")
        print(done.returncode, done.stdout, done.stderr)
    """
    plain, profiled = run_both(script(program))

    assert profiled.out == plain.out
    assert plain.out.startswith(b"0 65534")


def test_recorder_command_line_contains_no_secret(script, start_plain):
    """Everyone on the machine can read command lines."""
    program = script("""
        import os, sys, time
        sys.path.insert(0, sys.argv.pop(1))
        import psutil, torch
        from profiler import profile
        with profile(out=sys.argv.pop(1), report=False):
            print([child.cmdline() for child in psutil.Process().children()])
    """)
    ran = start_plain(program, ROOT, program.parent / "run", "--api-key", "Xy7-secretvalue").finish()

    assert ran.status == 0, ran.err
    assert b"'--api-key', '***'" in ran.out
    assert b"Xy7-secretvalue" not in ran.out
