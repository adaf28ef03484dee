"""The variables that we set let nobody else's files in, and whoever may not read ours goes on without."""

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


def test_python_is_led_to_our_own_installation_and_nowhere_else(tmp_path, monkeypatch):
    monkeypatch.delenv("PYTHONPATH", raising=False)
    found = launch.variables({"rings": str(tmp_path), "budget": 0.01})

    assert found["PYTHONPATH"] == str(
        ROOT / "profiler" / "agent" / "way_in"
    )  # no empty part, which is the current folder
    assert [path.name for path in launch.WAY_IN.glob("*.py")] == ["sitecustomize.py"]
    assert all(path.stat().st_mode & 0o022 == 0 for path in (ROOT / "profiler" / "agent").rglob("*.py"))
    assert set(found) == {"PYTHONPATH", launch.VARIABLE}
    assert json.loads(found[launch.VARIABLE]) == {"rings": str(tmp_path), "budget": 0.01}


@pytest.mark.process
def test_a_relative_path_to_our_installation_is_made_absolute(tmp_path):
    """Else the way in would be looked for wherever the program goes."""
    code = "import sys; sys.path[0] = '.'; from profiler import launch; print(launch.WAY_IN)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=True
    )

    assert done.stdout.strip() == str(ROOT / "profiler" / "agent" / "way_in")


def test_an_installation_whose_name_python_would_read_as_two_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(launch, "WAY_IN", Path("/opt/a:b/way_in"))

    with pytest.raises(ProfilerError, match="contains ':'"):
        launch.variables({"rings": str(tmp_path), "budget": 0.01})


def test_files_in_the_programs_folder_are_not_taken_for_ours(script, run_profiled, tmp_path):
    """Neither by the program's Python nor by the recorder's."""
    for name in ("_profile_train_agent", "profiler", "advisor", "wait"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'owned')!r}, 'w')")
    profiled = run_profiled(script(LOOP.format(torch=TORCH, before="")), options=("--no-windows",))

    assert profiled.status == 0, profiled.err
    assert not (tmp_path / "owned").exists()
    assert len(profiled.steps) == 10
    assert (profiled.folder / "report.html").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_a_program_that_gives_up_its_rights_trains_on(script, run_both):
    """Its rings' folder is closed to it from then on, and so may be the standard library."""
    # What torch would import as it takes the first step, from where nobody else may read.
    imports = "import torch._dynamo; __import__('torch.profiler', fromlist=['_cupti_monitor'])"
    drop = f"{imports}; os.chdir('/'); os.setgid(65534); os.setuid(65534)"
    plain, profiled = run_both(script(LOOP.format(torch=TORCH, before=drop)))

    assert (profiled.status, profiled.out) == (plain.status, plain.out) == (0, b"trained 65534\n")
    assert plain.err == b""
    assert b"Traceback" not in profiled.err


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="needs root and setpriv")
def test_a_child_of_another_user_runs_as_without_us(script, run_both):
    """It inherits our variables, and may read neither our installation nor the rings."""
    child = "setpriv --reuid 65534 --regid 65534 --clear-groups /usr/bin/env python3 -S -c"
    if subprocess.run([*child.split(), "pass"], capture_output=True, timeout=PATIENCE, check=False).returncode:
        pytest.skip("no Python that everybody may run")
    program = f"""
        import subprocess
        code = "import os, sys; print(os.getuid(), 'sitecustomize' in sys.modules)"
        done = subprocess.run([*{child.replace(" -S", "").split()!r}, code], capture_output=True, text=True, cwd="/")
        print(done.returncode, done.stdout, done.stderr)
    """
    plain, profiled = run_both(script(program))

    assert profiled.out == plain.out
    assert plain.out.startswith(b"0 65534")


def test_the_recorder_of_the_context_manager_is_told_no_secret_on_its_command_line(script, start_plain):
    """Command lines can be read by everybody on the machine."""
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
