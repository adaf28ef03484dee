"""How to run a loop: plain, under profile-train, under its peers."""

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from checkout import COMMAND
from events import in_run
from loops import Loop

HERE = Path(__file__).resolve().parent

LOOP, LIGHTNING_LOOP = HERE / "loop.py", HERE / "lightning_loop.py"


@dataclass(frozen=True, kw_only=True)
class Way:
    name: str
    line: Callable[[Loop, Path, Sequence[object]], Sequence[object]]
    """Command line, given the loop, a folder for this run and the script's arguments."""
    baseline: "Way | None" = None
    """What it is compared with; the same interpreter and the same script."""
    lacks: Callable[[Loop], str | None] = lambda loop: None
    """Why it cannot be used on a loop; None if it can."""
    starts: bool = True
    """Whether it starts before the script, and may have processes of its own; else it runs inside the script."""
    events: Callable[[Path], float | None] = lambda folder: None
    """Events per step, from its folder while it runs."""


def _script(python, loop, script, arguments):
    ranks = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", loop.ranks] if loop.ranks > 1 else []
    return [python, *ranks, script, *arguments]


def plain(python=sys.executable, name="plain"):
    return Way(name=name, line=lambda loop, folder, arguments: _script(python, loop, LOOP, arguments))


def plain_again():
    """Return the plain run against itself, to measure the noise of the machine."""
    again = plain(name="plain again")
    return Way(name=again.name, line=again.line, baseline=plain())


def profile_train(*options, name="profile-train"):
    def line(loop, folder, arguments):
        words = [*arguments] if loop.optimizer else [*arguments, "--watch", "profile_train"]
        return [*COMMAND, *options, "--out", folder / "run", *_script(sys.executable, loop, LOOP, words)]

    return Way(name=name, line=line, baseline=plain(), events=lambda folder: in_run(folder / "run"))


def stacks():
    """Return what stack sampling adds to a recording: with it against without it."""
    options = "--no-report", "--no-windows"
    without = profile_train(*options, "--no-stacks", name="profile-train without stacks")
    return replace(profile_train(*options, name="stacks"), baseline=without)


def samplers():
    """Return other samplers that are installed here, each against the plain program."""
    here = Path(sys.executable).parent
    rate = ["record", "--rate", 10, "--nonblocking", "--idle", "--format", "raw"]
    lines = {
        "py-spy alone": (here / "py-spy", lambda folder: [*rate, "--output", folder / "stacks", "--", sys.executable]),
        "pyinstrument": (here / "pyinstrument", lambda folder: ["--outfile", folder / "stacks"]),
        "Scalene": (here / "scalene", lambda folder: ["run", "--cpu-only", "--outfile", folder / "stacks"]),
    }
    return [_sampler(name, program, words) for name, (program, words) in lines.items()]


def _sampler(name, program, words):
    def line(loop, folder, arguments):
        return [program, *words(folder), LOOP, *arguments]

    def lacks(loop):
        if not program.exists():
            return f"it is not installed: there is no {program}"
        return None if loop.ranks == 1 else "it starts one process"

    return Way(name=name, line=line, baseline=plain(), lacks=lacks)


def traceml(python):
    """Return TraceML of `python`'s environment, used as its manual says for a plain loop."""
    script = python.with_name("traceml")
    why = None if script.exists() else f"there is no {script}"

    def line(loop, folder, arguments):
        ranks = ["--nproc-per-node", loop.ranks] if loop.ranks > 1 else []
        return [script, "run", "--logs-dir", folder / "logs", *ranks, LOOP, "--args", *arguments, "--watch", "traceml"]

    return Way(name="traceml-ai", line=line, baseline=plain(python), lacks=lambda loop: why)


def torch_profiler():
    def line(loop, folder, arguments):
        return _script(sys.executable, loop, LOOP, [*arguments, "--watch", "torch_profiler"])

    return Way(name="torch.profiler", line=line, baseline=plain(), starts=False)


def lightning_simple(python):
    """Return Lightning's simple profiler against the same Trainer without it."""

    def trainer(*options):
        return lambda loop, folder, arguments: _script(python, loop, LIGHTNING_LOOP, [*arguments, *options])

    installed = _can_import(python, "lightning")

    def lacks(loop):
        if not installed:
            return f"lightning is not installed for {python}"
        return None if loop.model == "mlp" and loop.ranks == 1 else "this loop has no counterpart in a Trainer"

    return Way(
        name="Lightning simple",
        line=trainer("--profiler", "simple"),
        baseline=Way(name="Lightning plain", line=trainer()),
        lacks=lacks,
        starts=False,
    )


def peers(python):
    """Return the peers; `python` is the interpreter of a venv with those that must be installed, by default ours."""
    absolute = Path(os.path.abspath(python or sys.executable))  # not resolved: a venv's python is a link
    return [traceml(absolute), torch_profiler(), lightning_simple(absolute)]


def _can_import(python, module):
    code = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module!r}) is None)"
    return subprocess.run([python, "-c", code], stdin=subprocess.DEVNULL, check=False).returncode == 0
