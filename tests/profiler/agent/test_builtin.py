"""Hooks in the place of built-in functions."""

import copy
import inspect
import os
import pickle
import posix

import pytest

from profiler.agent.patching import in_place_of

calls = []


@pytest.fixture
def hooked(monkeypatch):
    """A hook in the place of os.fsync, where it is looked for."""
    calls.clear()
    plain, hook = posix.fsync, in_place_of(posix.fsync, lambda *args: (calls.append(args), plain(*args))[1])
    for owner in (os, posix):
        monkeypatch.setattr(owner, "fsync", hook)
    return hook


def test_it_is_not_bound_to_instances_of_a_class_that_holds_it(hooked, tmp_path):
    class Files:
        sync = os.fsync

    with (tmp_path / "a").open("w") as file:
        Files().sync(file.fileno())
        assert calls == [(file.fileno(),)]


def test_it_passes_for_the_function(hooked):
    assert pickle.loads(pickle.dumps(hooked)) is hooked
    assert copy.deepcopy(hooked) is hooked
    assert (hooked.__name__, hooked.__module__) == ("fsync", "posix")
    assert str(inspect.signature(hooked)) == "(fd)"


def test_a_function_in_python_is_replaced_by_one():
    assert in_place_of(os.path.join, len) is len
