import ctypes
import os

import pytest

from profiler.agent.kineto import TEARDOWN, kept_subscribed


def for_kineto():
    """Return the variable as Kineto reads it."""
    getenv = ctypes.CDLL(None).getenv
    getenv.restype = ctypes.c_char_p
    return getenv(TEARDOWN.encode())


@pytest.mark.parametrize("wanted", ["1", "0", None])
def test_teardown_is_disabled_only_in_c_environment_and_restored(monkeypatch, wanted):
    if wanted is None:
        monkeypatch.delenv(TEARDOWN, raising=False)
    else:
        monkeypatch.setenv(TEARDOWN, wanted)
    with kept_subscribed():
        assert for_kineto() == (None if wanted is None else b"0")
        assert os.environ.get(TEARDOWN) == wanted
    assert for_kineto() == (None if wanted is None else wanted.encode())
