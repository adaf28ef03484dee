"""Signals of a process that stands in for a program: which to pass on, how to wait for them, and its exit code."""

import os
import signal
import time
from collections.abc import Iterable

PASSED_ON = frozenset(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD})
"""All signals that can be caught and concern the program."""
AWAITED = PASSED_ON | {signal.SIGCHLD}

# si_code of sigaction(2): from the kernel, users, queues, timers and threads (SI_TKILL to SI_KERNEL).
_CODES = range(-6, 0x80 + 1)


class Signals:
    """Signals that are blocked and waited for."""

    def __init__(self, awaited: Iterable[int]) -> None:
        self._awaited = frozenset(awaited)
        self._last: signal.struct_siginfo | None = None

    def next(self, seconds: float) -> signal.struct_siginfo | None:
        """Return the next signal; None if none comes within `seconds`.

        If the process is stopped, and continued after that time, `signal.sigtimedwait` returns uninitialized memory
        (seen in Python 3.10 to 3.13), which may look like any signal, SIGHUP for example.
        """
        begin = time.monotonic()
        info = signal.sigtimedwait(self._awaited, seconds)
        if info is None or (time.monotonic() - begin >= seconds > 0 and not self._is_real(info)):
            return None
        self._last = info
        return info

    def _is_real(self, info: signal.struct_siginfo) -> bool:
        """Return whether `info` may be a signal: its fields are plausible, and differ from the last one's."""
        return info.si_signo in self._awaited and info.si_code in _CODES and info.si_errno == 0 and info != self._last


def exit_code(status: int) -> int:
    """Return the exit code of a wait status as a shell would show it."""
    code = os.waitstatus_to_exitcode(status)
    return 128 - code if code < 0 else code
