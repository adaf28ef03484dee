"""Run a row's program, plain or under profile-train as a user would, and read the results."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from checkout import COMMAND
from seen import Seen

ROWS = Path(__file__).resolve().with_name("rows")
LONGEST = 600
"""Most seconds of a run."""
CLOCK = re.compile(r"^([\d.]+) ms a step$", re.MULTILINE)
TOO_SHORT = "window-too-short"
ALWAYS = {TOO_SHORT, "goal-undefined"}
"""Information that says nothing about what is wrong with the program."""

ALONE = {"PYTHONWARNINGS": "ignore", "PROFILE_TRAIN_CALIBRATION": os.devnull}
"""Only the models are under test: past trials on this machine would widen or narrow their intervals."""

NUMBERS = {
    "--workers": r"num_workers=(\d+)",
    "--prefetch": r"prefetch_factor=(\d+)",
    "--every": r"step % (\d+) == 0",
    "--threads": r"(?:set_num_threads\(|OMP_NUM_THREADS=)(\d+)",
}
"""Patterns that find, in the advice, the numbers that the cure then takes."""


class Failed(Exception):
    """A run without a result, with the end of its output."""


def script(row, python=sys.executable):
    """Return the command line of the row's program, with its launcher."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", row.ranks] if row.ranks > 1 else []
    return [python, *launcher, ROWS / f"{row.program}.py", *row.words]


def run(row, line, folder):
    """Run the line to its end; return its stderr."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "PROFILE_TRAIN"))}
    with subprocess.Popen(
        [str(word) for word in line],
        cwd=folder,
        env=environment | ALONE | row.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,  # so that all of it can be ended
    ) as running:
        try:
            _, stderr = running.communicate(timeout=LONGEST)
        except BaseException as error:
            os.killpg(running.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                raise Failed(f"{row.id} took more than {LONGEST} s") from None
            raise
    if running.returncode:
        raise Failed(f"{row.id} ended with {running.returncode}: {stderr[-1500:]}")
    return stderr


def step_time(row, words, folder):
    """Return the seconds per step of the plain program, by its own clock."""
    stderr = run(row, [*script(row), *words], folder)
    return float(CLOCK.findall(stderr)[-1]) / 1e3


def record(row, folder, words=()):
    """Return what profile-train says about the row."""
    out = folder / "run"
    shutil.rmtree(out, ignore_errors=True)
    stderr = run(row, [*COMMAND, "--out", out, *script(row), *words], folder)
    result = out / "result.json"
    if not result.exists():
        raise Failed(f"{row.id} has no result: {stderr[-1500:]}")
    return seen(json.loads(result.read_text()))


def seen(result):
    """Return what a result.json says."""
    every = [advice for advice in result["advice"] if advice["rule"] not in ALWAYS]
    above = [advice for advice in every if advice["severity"] != "info"]
    below = [advice for advice in every if advice["severity"] == "info"]
    scattered = any(advice["rule"] == TOO_SHORT for advice in result["advice"])
    first = next(iter(above + below if scattered else above), None)
    numbers = _numbers(first) if first else {}
    gains = {advice["rule"]: advice["gain"]["step_time_removed"] for advice in every if advice["gain"]}
    return Seen(
        above=tuple(advice["rule"] for advice in above),
        below=tuple(advice["rule"] for advice in below),
        scattered=scattered,
        gains={rule: (gain["low"], gain["expected"], gain["high"]) for rule, gain in gains.items() if gain},
        cure=tuple(word for name, number in numbers.items() for word in (name, number)),
        workers=int(numbers["--workers"]) if "--workers" in numbers else None,
        said=first["title"] if first else "",
    )


def _numbers(advice):
    code = "\n".join(change["code"] for change in advice["change"])
    found = {name: re.search(pattern, code) for name, pattern in NUMBERS.items()}
    return {name: match[1] for name, match in found.items() if match}
