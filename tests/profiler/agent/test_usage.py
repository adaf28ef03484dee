"""What a program has switched on, checked repeatedly."""

import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch

from profiler.agent.hooks.usage import Usage
from profiler.agent.session import Agent


def looked(recording, *, steps=None, window_open=False):
    """Return whether the program's profiler recorded throughout, after a check for each of these states, at these step
    counts."""
    enabled = iter(recording)
    autograd = SimpleNamespace(_profiler_enabled=lambda: next(enabled))
    torch = SimpleNamespace(_C=SimpleNamespace(_autograd=autograd))
    agent = SimpleNamespace(torch=torch, settings={}, steps=0, window_open=window_open)
    usage = Usage(agent)
    for agent.steps in steps or range(1, len(recording) + 1):
        known = usage.profiled_throughout()
    return known


@pytest.mark.parametrize(
    ("recording", "throughout"),
    [
        ([True] * 3, True),
        ([True] * 2, False),  # too few to tell
        ([True, True, True, False], True),  # the training has ended meanwhile
        ([True, True, True, False, False], False),  # recorded at the start only
        ([False, True, False, True, False, True, False, True], False),  # a schedule
        ([False] * 8, False),
    ],
)
def test_distinguishes_continuous_from_scheduled_profiler(recording, throughout):
    assert looked(recording) is throughout


def test_check_without_a_new_step_does_not_count():
    assert looked([True] * 4, steps=(1, 1, 1, 2)) is False


def test_our_window_is_not_mistaken_for_program_profiler():
    assert looked([True] * 4, window_open=True) is False


@pytest.fixture
def agent(tmp_path):
    made = Agent(torch, {"rings": str(tmp_path)})
    yield made
    made.stop()


def test_set_num_threads_stays_the_same_function_after_its_first_call(agent):
    usage = Usage(agent)
    usage.install()
    first = torch.set_num_threads
    first(torch.get_num_threads())
    assert torch.set_num_threads is first
    assert usage.flags["threads_from"] == "program"
    agent.remove("usage")
    assert torch.set_num_threads is not first


def test_self_removing_hook_may_be_called_during_its_installation(agent, monkeypatch):
    """Another thread of the program may call it before the agent's next statement."""
    called = []

    class Checkpoint(ModuleType):
        def __setattr__(self, name, value):
            super().__setattr__(name, value)
            if value is not plain:
                called.append(value())

    def plain():
        return "settings"

    module = Checkpoint("torch.utils.checkpoint")
    module._get_autocast_kwargs = plain
    monkeypatch.setitem(sys.modules, module.__name__, module)
    usage = Usage(agent)

    usage.install()

    assert called == ["settings"]
    assert usage.flags["checkpointing"] is True
    assert module._get_autocast_kwargs is plain
