"""Code on the stack: the user's, and that of frameworks."""

import sys
import types

import pytest

from profiler.agent import stack
from profiler.agent.stack import MOST_CALLERS, callers, frameworks, place


def through(module, call, file="/venv/lib/site-packages/x.py"):
    """Return a function of that module that calls `call`."""
    code = compile("def run(): return call()", file, "exec")
    scope = types.ModuleType(module).__dict__
    scope["call"] = call
    exec(code, scope)
    return scope["run"]


def user(call, file="/home/me/train.py"):
    return through("__main__", call, file)


def test_place_is_the_line_of_user_code():
    assert user(place)() == {"file": "/home/me/train.py", "line": 1}


@pytest.mark.parametrize(
    ("modules", "via"),
    [
        (["transformers.trainer"], ["transformers"]),
        (["accelerate.data_loader", "transformers.trainer"], ["transformers", "accelerate"]),
        (["lightning.pytorch.trainer.trainer"], ["lightning"]),
        (["pytorch_lightning.loops"], ["lightning"]),
        (["lightning.fabric.wrappers"], ["fabric"]),
        (["deepspeed.runtime.engine"], ["deepspeed"]),
        (["accelerate.launchers"], []),
        (["acceleratexyz.module", "timm.optim"], []),
    ],
)
def test_place_names_the_frameworks_in_between(modules, via):
    call = place
    for module in modules:
        call = through(module, call)

    assert user(call)().get("via", []) == via


def test_user_code_called_by_a_framework_counts_as_user_code():
    """For example configure_optimizers of a LightningModule."""
    inner = through("lightning.pytorch.core", user(place))

    assert user(inner)() == {"file": "/home/me/train.py", "line": 1}


def test_notebook_code_is_named_by_its_cell(monkeypatch):
    file = "/tmp/ipykernel_28895/2516830660.py"
    assert user(place, file)() == {"file": "notebook cell", "line": 1}

    compiler = types.SimpleNamespace(_filename_map={file: 2})
    shell = type("InteractiveShell", (), {"_instance": types.SimpleNamespace(compile=compiler)})
    monkeypatch.setitem(sys.modules, "IPython.core.interactiveshell", types.SimpleNamespace(InteractiveShell=shell))
    assert user(place, file)() == {"file": "notebook cell 2", "line": 1}


def test_falls_back_to_package_line_without_user_line(monkeypatch):
    monkeypatch.setattr(stack, "is_users", lambda file: False)

    assert through("tool", place)()["file"] == "/venv/lib/site-packages/x.py"


def test_framework_that_drives_the_loop_comes_first():
    call = through("transformers.trainer", through("accelerate.optimizer", user(frameworks)))

    assert user(call)() == ["transformers", "accelerate"]


def test_non_string_module_name_is_accepted():
    code = compile("def run(): return call()", "/home/me/train.py", "exec")
    scope = {"__name__": 3, "call": frameworks}
    exec(code, scope)

    assert scope["run"]() == []


def test_number_of_callers_is_limited(monkeypatch):
    monkeypatch.setattr(stack, "is_users", lambda file: file.startswith("/home/me"))
    call = callers
    for number in range(MOST_CALLERS + 2):
        call = user(call, f"/home/me/{number}.py")

    assert [line["file"] for line in call()] == [f"/home/me/{number}.py" for number in range(MOST_CALLERS)]


def test_the_programs_locals_are_left_alone():
    """Before Python 3.13, reading f_locals would write into the dictionary that locals() returned."""
    scope = {"call": place, "__name__": "__main__"}
    exec(
        compile("def run():\n    mine = locals()\n    later = call()\n    return dict(mine)", "/me/t.py", "exec"), scope
    )

    assert scope["run"]() == {}
