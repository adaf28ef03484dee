"""Waiting for signals in a process that is stopped and continued."""

import os
import signal
import subprocess
import sys
import time

import pytest

WAITS = """
import signal, sys
from profiler.signals import Signals
awaited = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD}
signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
signals, found = Signals(awaited), []
print("ready", flush=True)
while signal.SIGTERM not in found:
    info = signals.next(0.05)
    found += [] if info is None or info.si_signo == signal.SIGCONT else [info.si_signo]
print(*found)
"""


@pytest.mark.process
def test_stop_is_not_reported_and_signals_sent_meanwhile_arrive():
    waiting = subprocess.Popen([sys.executable, "-c", WAITS], stdout=subprocess.PIPE, text=True)
    assert waiting.stdout.readline() == "ready\n"
    for asked in (None, None, signal.SIGUSR1, signal.SIGTERM):
        os.kill(waiting.pid, signal.SIGSTOP)
        time.sleep(0.3)  # the waiting time is over
        if asked:
            os.kill(waiting.pid, asked)
        os.kill(waiting.pid, signal.SIGCONT)
        time.sleep(0.1)
    found = waiting.communicate()[0]

    assert list(map(int, found.split())) == [signal.SIGUSR1, signal.SIGTERM]
