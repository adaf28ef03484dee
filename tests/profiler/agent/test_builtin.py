"""Hooks that replace built-in functions."""

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
    """Replace os.fsync with a hook in both modules that hold it; return the hook."""
    calls.clear()
    plain, hook = posix.fsync, in_place_of(posix.fsync, lambda *args: (calls.append(args), plain(*args))[1])
    for owner in (os, posix):
        monkeypatch.setattr(owner, "fsync", hook)
    return hook


def test_hooked_builtin_is_not_bound_as_a_method(hooked, tmp_path):
    class Files:
        sync = os.fsync

    with (tmp_path / "a").open("w") as file:
        Files().sync(file.fileno())
        assert calls == [(file.fileno(),)]


def test_hooked_builtin_looks_like_the_original(hooked):
    assert pickle.loads(pickle.dumps(hooked)) is hooked
    assert copy.deepcopy(hooked) is hooked
    assert (hooked.__name__, hooked.__module__) == ("fsync", "posix")
    assert str(inspect.signature(hooked)) == "(fd)"


def test_python_function_is_replaced_without_a_wrapper():
    assert in_place_of(os.path.join, len) is len
