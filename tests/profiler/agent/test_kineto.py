import ctypes
import os

import pytest

from profiler.agent.kineto import TEARDOWN, kept_subscribed


def for_kineto():
    """What Kineto reads."""
    getenv = ctypes.CDLL(None).getenv
    getenv.restype = ctypes.c_char_p
    return getenv(TEARDOWN.encode())


@pytest.mark.parametrize("wanted", ["1", "0", None])
def test_a_profiler_that_ends_with_the_program_asks_for_no_teardown(monkeypatch, wanted):
    if wanted is None:
        monkeypatch.delenv(TEARDOWN, raising=False)
    else:
        monkeypatch.setenv(TEARDOWN, wanted)
    with kept_subscribed():
        assert for_kineto() == (None if wanted is None else b"0")
        assert os.environ.get(TEARDOWN) == wanted
    assert for_kineto() == (None if wanted is None else wanted.encode())
