"""What a program has switched on, looked at again and again."""

import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch

from profiler.agent.hooks.usage import Usage
from profiler.agent.session import Agent


def looked(recording, *, steps=None, window_open=False):
    """What is known of the program's profiler after a look at each of these moments, at so many steps each."""
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
def test_a_profiler_that_records_every_step_is_told_from_one_with_a_schedule(recording, throughout):
    assert looked(recording) is throughout


def test_a_look_without_a_step_since_is_none():
    assert looked([True] * 4, steps=(1, 1, 1, 2)) is False


def test_our_own_window_is_not_the_programs():
    assert looked([True] * 4, window_open=True) is False


@pytest.fixture
def agent(tmp_path):
    made = Agent(torch, {"rings": str(tmp_path)})
    yield made
    made.stop()


def test_the_number_of_threads_is_set_by_the_same_function_after_its_first_call(agent):
    usage = Usage(agent)
    usage.install()
    first = torch.set_num_threads
    first(torch.get_num_threads())
    assert torch.set_num_threads is first
    assert usage.flags["threads_from"] == "program"
    agent.remove("usage")
    assert torch.set_num_threads is not first


def test_a_hook_that_takes_itself_back_may_be_called_as_soon_as_it_is_there(agent, monkeypatch):
    """By another thread of the program, before the agent's next statement."""
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
