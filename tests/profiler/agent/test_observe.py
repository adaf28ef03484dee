from types import SimpleNamespace

import pytest

from profiler.agent.observe import observe
from profiler.agent.session import Agent


class Owner:
    def call(self, value):
        """Return twice the value."""
        if value is None:
            raise TypeError("no value")
        return 2 * value


@pytest.fixture
def seen():
    return []


@pytest.fixture
def agent(seen):
    return SimpleNamespace(torch=None, uninstall=[], give_up=lambda source, error: seen.append((source, str(error))))


def fail(*_):
    raise ValueError("surprise")


def test_observed_function_behaves_and_looks_unchanged(agent, seen):
    plain = Owner.call
    observe(agent, "hook", "call", lambda self, value: value, Owner, after=lambda *ended: seen.append(ended))
    assert Owner().call(3) == 6
    with pytest.raises(TypeError):
        Owner().call(None)
    assert seen == [(3, 6, False)], "a look before that returns None asks for none after"
    assert (Owner.call.__name__, Owner.call.__doc__) == (plain.__name__, plain.__doc__)
    Agent.remove(agent, "hook")
    assert Owner.call is plain


def test_failing_call_is_observed_with_unchanged_traceback(agent, seen):
    observe(agent, "hook", "call", lambda *_: "state", Owner, after=lambda *ended: seen.append(ended))
    with pytest.raises(TypeError) as caught:
        Owner().call(None)
    Agent.remove(agent, "hook")
    assert seen == [("state", None, True)]
    assert [entry.path.name for entry in caught.traceback] == ["test_observe.py"] * 2


@pytest.mark.parametrize(("before", "after"), [(fail, None), (lambda *_: True, fail)])
def test_failing_observer_is_given_up_and_program_continues(agent, seen, before, after):
    observe(agent, "hook", "call", before, Owner, after=after)
    assert Owner().call(3) == 6
    Agent.remove(agent, "hook")
    assert seen == [("hook", "surprise")]
