"""Files next to a program are the program's own, whatever their names."""

import sys
import venv
from importlib.util import find_spec
from pathlib import Path

import pytest
from programs import TORCH

TRAIN = """
import torch
torch.set_num_threads(1)
torch.manual_seed(0)
layer = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
for _ in range(60):
    loss = layer(torch.ones(1, 1)).square().sum()
    loss.backward()
    optimizer.step()
print(loss.item().hex())
"""

NAMES = ("profiler", "advisor", "templates", "sitecustomize", "usercustomize", "pynvml", "psutil", "jinja2", "click")
HAS_A_SITE = "sitecustomize" in sys.modules
"""Whether this Python has its own sitecustomize, like Debian's; it is found before any other."""


@pytest.fixture
def neighbors(tmp_path):
    """Write modules next to the script, named like ours, like those that we use, and like those that the interpreter
    looks for; each prints when it is imported. Also make a folder named torch, as for checkpoints."""
    for name in (*NAMES, "statistics", "wait", "start", "ring", "facts", "event_writer", "session", "hooks", "window"):
        (tmp_path / f"{name}.py").write_text(f"print('imported {name}', __name__)\nwhose = 'the program'\n")
    (tmp_path / "templates.py").unlink()
    (tmp_path / "templates").mkdir()
    (tmp_path / "templates" / "page.html").write_text("{{ mine }}")
    (tmp_path / "torch").mkdir()
    return tmp_path


def test_modules_next_to_the_script_are_imported_only_by_the_program(neighbors, script, run_both):
    """With windows, the agent has loaded everything that it ever loads."""
    names = [name for name in NAMES if name != "templates" and not (HAS_A_SITE and name == "sitecustomize")]
    program = script(TORCH + TRAIN + f"import {', '.join(names)}\nprint([{'.whose, '.join(names)}.whose])")
    plain, profiled = run_both(program, options=("--no-report", "--budget", "0.5"))

    assert plain.out.count(b"imported") >= len(names)  # torch itself imports a pynvml and statistics
    assert (plain.status, plain.out) == (profiled.status, profiled.out)
    assert len(profiled.steps) == 60
    assert not profiled.problems.keys() - {"nvml", "windows"}


def test_agent_imports_nothing_that_torch_has_not_imported(script, run_both):
    """So no file next to the script can be loaded instead."""
    program = script(TRAIN + "import sys; print(sorted(name for name in sys.modules if 'profile_train' not in name))")
    plain, profiled = run_both(program, options=("--no-report", "--budget", "0.5"))

    assert profiled.out == plain.out


def test_pth_files_and_sitecustomize_still_run(script, start, start_profiled, tmp_path):
    """An environment's `.pth` files and sitecustomize, and the user's usercustomize, in their order."""
    venv.create(tmp_path / "env", symlinks=True)
    (site,) = (tmp_path / "env").glob("lib/python*/site-packages")
    (site / "torch.pth").write_text(str(Path(find_spec("torch").origin).parents[1]))
    (site / "mine.pth").write_text("import builtins; builtins.seen = ['pth']\n")
    (site / "sitecustomize.py").write_text("import sys; seen += ['sitecustomize', __name__, __file__, sys.path[:]]")
    program = script(TORCH + TRAIN + "import sitecustomize, sys; print(seen, sitecustomize.__spec__.origin, sys.path)")
    python = tmp_path / "env" / "bin" / "python"
    plain, profiled = start(python, program).finish(), start_profiled(python, program).finish()

    assert HAS_A_SITE or b"['pth', 'sitecustomize', 'sitecustomize', " in plain.out
    assert (plain.status, plain.out, plain.err) == (profiled.status, profiled.out, profiled.err)
    assert len(profiled.steps) == 60


@pytest.mark.parametrize(
    "module",
    [
        "def zeros(*size): return [0] * len(size)",
        "from types import SimpleNamespace as nn\nversion = None\ndef __getattr__(name): raise RuntimeError(name)",
        "raise ImportError('libcudart.so.11: cannot open shared object file', name='torch')",
        "import torch.lib\nraise ValueError('torn')",
        "1 / 0",
    ],
    ids=["another module", "attributes raise", "missing library", "missing submodule", "error on import"],
)
def test_fake_or_broken_torch_behaves_unchanged(script, run_both, module):
    script(module, "torch/__init__.py")
    program = script(
        """
        import traceback
        for _ in range(2):
            try:
                import torch
                print(torch.zeros(1, 2))
            except Exception:
                traceback.print_exc()
        import torch
        """
    )
    plain, profiled = run_both(program)

    assert (plain.status, plain.out, plain.err) == (profiled.status, profiled.out, profiled.err)
    assert profiled.ranks == []


def test_program_folder_gets_no_extra_files(script, start, start_profiled, tmp_path):
    left = {}
    for name, begin in (("plain", start), ("profiled", start_profiled)):
        script(TORCH + TRAIN + "import helper", f"{name}/train.py")
        script("", f"{name}/helper.py")
        ran = begin("python", "train.py", cwd=tmp_path / name, env={"PYTHONDONTWRITEBYTECODE": ""}).finish()
        assert (ran.status, ran.err) == (0, b"")
        left[name] = {str(path.relative_to(tmp_path / name)) for path in (tmp_path / name).rglob("*")}

    assert any("helper" in path and path.endswith(".pyc") for path in left["plain"])
    assert left["profiled"] == left["plain"]


def test_agent_bytecode_is_not_written_if_bytecode_is_disabled(script, run_profiled, tmp_path):
    """With PYTHONPYCACHEPREFIX, ours would be next to that of every other module."""
    cache = {"PYTHONPYCACHEPREFIX": str(tmp_path / "cache"), "PYTHONDONTWRITEBYTECODE": "1"}
    ran = run_profiled(script(TORCH + TRAIN), env=cache)

    assert len(ran.steps) == 60
    assert not (tmp_path / "cache").exists()
