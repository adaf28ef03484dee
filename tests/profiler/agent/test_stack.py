"""Whose code is on the stack."""

import sys
import types

import pytest

from profiler.agent import stack
from profiler.agent.stack import MOST_CALLERS, callers, frameworks, place


def through(module, call, file="/venv/lib/site-packages/x.py"):
    """`call` as it is called from a function of that module."""
    code = compile("def run(): return call()", file, "exec")
    scope = types.ModuleType(module).__dict__
    scope["call"] = call
    exec(code, scope)
    return scope["run"]


def user(call, file="/home/me/train.py"):
    return through("__main__", call, file)


def test_the_users_own_line():
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
def test_who_made_a_thing_on_the_users_behalf(modules, via):
    call = place
    for module in modules:
        call = through(module, call)

    assert user(call)().get("via", []) == via


def test_code_that_a_framework_calls_is_the_users_own():
    """As configure_optimizers of a LightningModule."""
    inner = through("lightning.pytorch.core", user(place))

    assert user(inner)() == {"file": "/home/me/train.py", "line": 1}


def test_code_in_a_notebook_is_known_by_its_cell(monkeypatch):
    file = "/tmp/ipykernel_28895/2516830660.py"
    assert user(place, file)() == {"file": "notebook cell", "line": 1}

    compiler = types.SimpleNamespace(_filename_map={file: 2})
    shell = type("InteractiveShell", (), {"_instance": types.SimpleNamespace(compile=compiler)})
    monkeypatch.setitem(sys.modules, "IPython.core.interactiveshell", types.SimpleNamespace(InteractiveShell=shell))
    assert user(place, file)() == {"file": "notebook cell 2", "line": 1}


def test_without_a_line_of_the_users_a_packages_line_has_to_do(monkeypatch):
    monkeypatch.setattr(stack, "is_users", lambda file: False)

    assert through("tool", place)()["file"] == "/venv/lib/site-packages/x.py"


def test_what_drives_the_loop_comes_first():
    call = through("transformers.trainer", through("accelerate.optimizer", user(frameworks)))

    assert user(call)() == ["transformers", "accelerate"]


def test_a_module_may_have_any_name():
    code = compile("def run(): return call()", "/home/me/train.py", "exec")
    scope = {"__name__": 3, "call": frameworks}
    exec(code, scope)

    assert scope["run"]() == []


def test_callers_are_counted(monkeypatch):
    monkeypatch.setattr(stack, "is_users", lambda file: file.startswith("/home/me"))
    call = callers
    for number in range(MOST_CALLERS + 2):
        call = user(call, f"/home/me/{number}.py")

    assert [line["file"] for line in call()] == [f"/home/me/{number}.py" for number in range(MOST_CALLERS)]


def test_the_programs_locals_are_left_alone():
    """Before Python 3.13 a look at f_locals would write into the dictionary that locals() gave."""
    scope = {"call": place, "__name__": "__main__"}
    exec(
        compile("def run():\n    mine = locals()\n    later = call()\n    return dict(mine)", "/me/t.py", "exec"), scope
    )

    assert scope["run"]() == {}
