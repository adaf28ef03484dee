"""`profile-train watch`, next to a running training, in its own terminals."""

import fcntl
import json
import os
import pty
import select
import shlex
import shutil
import struct
import subprocess
import termios

import pytest
from programs import COMMAND, PATIENCE, TRAINS, wait_until

# Prints a line now and then, and trains until it is asked to end.
TRAINING = (
    TRAINS
    + """
import pathlib
for number in range(100_000):
    train(20, pause=0.0005)
    print("epoch", number, flush=True)
    if pathlib.Path("enough").exists():
        break
"""
)


@pytest.fixture
def training(script, start_profiled, tmp_path):
    """Run a program that trains under profile-train; its latest run is in ./profile-train-runs."""
    path = script(TRAINING)
    running = start_profiled(path, out=tmp_path / "profile-train-runs" / "now")
    running.wait_for("epoch 1")
    yield running
    (tmp_path / "enough").touch()
    running.finish()


def watch(start, *words, status=0):
    ran = start(*COMMAND, "watch", *words).finish()
    assert ran.status == status, ran.err
    return ran


def test_user_mistakes_give_message_and_remedy(start, tmp_path):
    assert b"There is no run in profile-train-runs.\nStart one" in watch(start, status=1).err
    assert b"contains no recording" in watch(start, "--once", tmp_path, status=1).err
    assert b"--json requires --once" in watch(start, "--json", status=2).err


class Terminal:
    """A terminal of a given size, and what was written to it."""

    def __init__(self, words, cwd, width, height):
        self.master, slave = pty.openpty()
        self.resize(width, height)
        environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "", "LINES": ""}
        del environment["COLUMNS"], environment["LINES"]
        self.process = subprocess.Popen(
            words,
            cwd=cwd,
            env=environment,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(slave)
        self.out = b""

    def resize(self, width, height):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    def read(self):
        """Return all output so far."""
        while select.select([self.master], [], [], 0)[0]:
            try:
                self.out += os.read(self.master, 1 << 16)
            except OSError:  # the other end is closed
                break
        return self.out

    def wait_for(self, text):
        return wait_until(lambda: text in self.read(), f"{text!r} on the terminal")

    def clear(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.master)


@pytest.fixture
def terminal(tmp_path):
    opened = []

    def open_(*words, width=80, height=24):
        opened.append(Terminal([*COMMAND, "watch", *words], tmp_path, width, height))
        return opened[-1]

    yield open_
    for each in opened:
        each.clear()


def test_watch_runs_beside_training_until_ctrl_c_or_end(training, start, terminal, tmp_path):
    shows_the_latest_run_once(start)
    assert all(line.startswith(("20 ", "epoch ")) for line in training.out.splitlines())  # nothing is drawn over it

    shown = terminal()
    shown.wait_for(b"Ctrl-C stops watching")
    assert b"\x1b[?1049h" in shown.out
    os.write(shown.master, b"\x03")
    assert shown.process.wait(PATIENCE) == 0
    left = shown.read().rpartition(b"\x1b[?1049l")[2]
    assert b"Forward" in left
    assert training.process.poll() is None

    again = terminal()
    again.wait_for(b"Ctrl-C stops watching")
    (tmp_path / "enough").touch()
    wait_until(lambda: again.read() and again.process.poll() is not None, "the end of watching")
    assert again.process.returncode == 0
    assert b"completed" in again.read().rpartition(b"\x1b[?1049l")[2]


def shows_the_latest_run_once(start):
    def trained():
        seen = json.loads(watch(start, "--once", "--json").out)
        return seen if seen["steps"] and seen["steps"]["count"] > 40 else None

    seen = wait_until(trained, "forty steps in the store")
    text = watch(start, "--once", "profile-train-runs/now").out.decode()

    assert seen["schema"] == "profile-train/watch@1"
    assert seen["ended"] == "running"
    assert seen["steps"]["rate"] > 0
    assert seen["steps"]["phases"]["forward"] > 0
    assert seen["steps"]["phases"]["h2d"] is None
    assert text.startswith("running ")
    assert "Forward" in text


@pytest.fixture
def tmux(tmp_path):
    """Run a command in a tmux of its own; return what it prints."""
    if shutil.which("tmux") is None:
        pytest.skip("needs tmux")
    socket = tmp_path / "tmux"
    environment = {**os.environ, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}

    def call(*words):
        done = subprocess.run(
            ["tmux", "-f", "/dev/null", "-S", socket, *words],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
        )
        return done.stdout

    yield call
    call("kill-server")


def test_watch_fits_80x24_screen_and_after_resize(training, tmux):
    tmux("new-session", "-d", "-x", "80", "-y", "24", f"{shlex.join([*COMMAND, 'watch'])}; sleep 60")

    def screen():
        return tmux("capture-pane", "-p").rstrip("\n").splitlines()

    def whole(width=80, height=24, *parts):
        """Return the screen once it is complete: a redraw may be seen half done."""
        shown = screen()
        fits = len(shown) <= height and max(map(len, shown), default=0) <= width
        is_whole = shown and shown[0].startswith("running ") and "Ctrl-C" in shown[-1]
        return shown if is_whole and fits and all(any(part in line for line in shown) for part in parts) else None

    parts = ("Forward", "a second", "cores", "Host memory ")
    first = wait_until(lambda: whole(80, 24, *parts), "the whole screen")

    wait_until(lambda: (shown := whole(80, 24, *parts)) and shown[0] != first[0], "an update")

    tmux("resize-window", "-x", "50", "-y", "12")
    wait_until(lambda: whole(50, 12), "the smaller screen")
