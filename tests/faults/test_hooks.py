"""A hook of the agent fails."""

import subprocess
import sys

import pytest
from programs import TRAINS, codes

PROVOKES = """
import importlib, os, sys

def provoked(*args, **kwargs):
    raise RuntimeError("provoked")

if "_profile_train_agent" in sys.modules:
    for name in os.environ["BROKEN"].split():
        module, _, attribute = name.partition(":")
        owner = importlib.import_module(f"_profile_train_agent.{module}")
        *outer, last = attribute.split(".")
        for each in outer:
            owner = getattr(owner, each)
        assert hasattr(owner, last), name
        setattr(owner, last, provoked)
"""

LOADS = """
from torch.utils.data import DataLoader
for epoch in range(2):
    for batch in DataLoader([torch.full((4,), float(i % 7)) for i in range(80)], 4):
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.02)
        print(loss.item())
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """Return what a plain run prints."""
    path = tmp_path_factory.mktemp("plain") / "train.py"
    path.write_text(f"{TRAINS}\n{LOADS}")
    ran = subprocess.run([sys.executable, path], capture_output=True, check=True)
    assert (ran.stdout.count(b"\n"), ran.stderr) == (40, b"")
    return ran.stdout


@pytest.fixture
def run_broken(training, run_profiled, script, said):
    """Return a function that records a program with an agent in which these functions raise, and checks that it runs
    like a plain one."""

    def run(*broken):
        site = script(PROVOKES, "site/sitecustomize.py").parent
        ran = run_profiled(training(LOADS), env={"PYTHONPATH": str(site), "BROKEN": " ".join(broken)})
        assert (ran.status, ran.out, ran.err) == (0, said, b"")
        return ran

    return run


INSTALLED = {
    "backward": ("hooks.backward:install", "backward passes"),
    "forward": ("hooks.forward:Roots.install", "forward passes"),
    "save": ("hooks.save:install", "saving"),
    "gc": ("hooks.gc:install", "garbage collections"),
    "usage": ("hooks.usage:Usage.install", "the features of torch that the program uses"),
    "output": ("hooks.output:Output.install", "logging and output"),
    "dataloader": ("hooks.dataloader:install", "waiting for data"),
    "tracebacks": ("tracebacks:install", "the error that ends the program"),
}


@pytest.mark.fault(
    "A hook cannot be installed: model, backward pass, DataLoader, saving, garbage collection, output",
    "unchanged",
    "everything else: each step, with the parts that were measured",
    "*Not fully measured: backward passes (RuntimeError: ...).* and so on, one line each",
)
def test_hooks_that_cannot_be_installed_are_skipped_and_reported(run_broken, check_report):
    profiled = run_broken(*(where for where, _ in INSTALLED.values()))

    for source, (_, what) in INSTALLED.items():
        assert codes(profiled, source) == ["RuntimeError"]
        assert what in profiled.problems[source][0]
    assert check_report(profiled)["ended"] == "completed"
    assert len(profiled.steps) == 40
    for step in profiled.steps:
        assert step.optimizer > 0
        assert step.data_wait is step.forward is step.backward is None


@pytest.mark.fault(
    "The hook on the optimizer cannot be installed",
    "unchanged",
    "everything but steps, whose end is unknown",
    "*Not fully measured: optimizers and their steps (RuntimeError: ...).*",
)
def test_missing_steps_without_optimizer_hook_are_reported(run_broken, check_report):
    profiled = run_broken("hooks.optimizer:install")

    assert check_report(profiled, shown=["optimizer"])["ended"] == "completed"
    assert codes(profiled, "optimizer") == ["RuntimeError"]
    assert not profiled.steps
    assert profiled.facts("loader")


@pytest.mark.fault(
    "A hook fails during training: inspection of the model, the optimizer, the flags",
    "unchanged",
    "every step with all its parts",
    "*Not fully measured: the model's layers and sizes (RuntimeError: ...).* and so on, one line each",
)
def test_hooks_that_fail_later_disable_only_themselves(run_broken, check_report):
    profiled = run_broken("facts:model", "facts:optimizer", "facts:flags")

    failed = {problem.source for problem in profiled.tables.problems if problem.code == "RuntimeError"}
    assert check_report(profiled, shown=failed)["ended"] == "completed"
    assert {"model", "optimizer"} < failed
    assert len(failed) == 3
    assert not profiled.facts("model")
    assert len(profiled.steps) == 40
    for step in profiled.steps[1:]:
        assert step.optimizer > 0
        assert step.data_wait is not None
        assert step.forward > 0
        assert step.backward > 0
