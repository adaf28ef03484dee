"""Messages about how a program ended: tests/snapshots/endings.txt."""

from signal import SIGCHLD, SIGINT, SIGKILL, SIGRTMIN, SIGSEGV, SIGTERM

import pytest
from snapshots import same, scenes

from profiler.recorder.ending import GRACE, Asked, code, sentence

WORKER = {"type": "RuntimeError", "message": "DataLoader worker (pid 7) is killed by signal: Killed. "}
GPU = {"type": "torch.OutOfMemoryError", "message": "CUDA out of memory. Tried to allocate 2.00 GiB."}
HOST = {"type": "RuntimeError", "message": "DefaultCPUAllocator: can't allocate memory"}
PLAIN = {"type": "ValueError"}

ENDS = {
    "exit status": ("exit-status", ("failed", 3, None)),
    "exit status of a launcher's child": ("exit-status", ("failed", 128 + SIGKILL, None)),
    "no exit status": ("exit-status", ("failed", None, None)),
    "soon after a signal": ("exit-status", ("failed", 1, None, (), Asked(SIGTERM, GRACE - 1.0))),
    "Ctrl-C": ("killed", ("killed", None, SIGINT)),
    "segmentation fault": ("killed", ("killed", None, SIGSEGV)),
    "a signal that says nothing": ("killed", ("killed", None, SIGCHLD)),
    "a signal without a name": ("killed", ("killed", None, SIGRTMIN + 1)),
    "gone": ("killed", ("killed", None, None)),
    "an error": ("ValueError", ("failed", 1, None, [PLAIN])),
    "an error of which one rank knows more": ("torch.OutOfMemoryError", ("failed", 1, None, [PLAIN, GPU])),
    "no memory": ("RuntimeError", ("failed", 1, None, [HOST])),
    "a worker": ("worker", ("failed", 1, None, [WORKER])),
}


def test_snapshot_of_endings():
    same("endings.txt", scenes({name: sentence(*about) for name, (_, about) in ENDS.items()}))


@pytest.mark.parametrize("name", ENDS)
def test_each_ending_has_a_code(name):
    expected, (outcome, _, _, *errors) = ENDS[name]

    assert code(outcome, *errors[:1]) == expected


def test_failure_long_after_a_signal_does_not_mention_it():
    late = sentence("failed", 1, None, asked=Asked(SIGTERM, GRACE + 1.0))

    assert late == sentence("failed", 1, None)


def test_completed_program_gets_no_message():
    assert sentence("completed", 0, None, asked=Asked(SIGTERM, 1.0)) is None
