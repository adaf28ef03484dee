"""Run programs plain and recorded within a time limit, and read their output and their recordings."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from profiler.store import Tables

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(__file__).resolve().parent / "programs"
COMMAND = (sys.executable, "-c", "import sys; from advisor.cli import main; raise SystemExit(main())")


class Failed(Exception):
    """A check cannot be done; the text says why."""


@dataclass(frozen=True)
class Ran:
    """What a program left behind."""

    status: int
    out: str
    err: str
    seconds: float
    folder: Path | None = None

    @property
    def said(self) -> dict[str, Any]:
        """Return the last line of the program's output that is a JSON object."""
        for line in reversed(self.out.splitlines()):
            if line.startswith("{"):
                return json.loads(line)
        raise Failed(f"no figures printed; status {self.status}: {self.err.strip()[-300:]}")

    @property
    def result(self) -> Result:
        """Return the recording's result.json."""
        path = self.folder / "result.json" if self.folder else None
        if path is None or not path.is_file():
            raise Failed(f"no result.json; status {self.status}: {self.err.strip()[-300:]}")
        return Result(json.loads(path.read_text()))

    @property
    def tables(self) -> Tables:
        """Return the contents of the recording's file."""
        from profiler.store import find, read

        found = find(self.folder) if self.folder else []
        if not found:
            raise Failed(f"no recording; status {self.status}: {self.err.strip()[-300:]}")
        return read(found[0])


@dataclass(frozen=True)
class Result:
    """A result.json."""

    whole: dict[str, Any]

    def metric(self, name: str) -> float:
        """Return a metric's value; raise Failed with the reason if it has none."""
        metric = self.whole["metrics"].get(name, {"missing": "there is no such metric"})
        if "value" not in metric:
            raise Failed(f"{name}: {metric.get('missing')}")
        return metric["value"]

    def phase_seconds(self, *names: str) -> float:
        """Return the time of these phases in a mean step."""
        shares = [self.whole["phases"].get(name) for name in names]
        if None in shares:
            raise Failed(f"not measured: {[name for name, share in zip(names, shares, strict=True) if share is None]}")
        return sum(shares) * self.whole["steps"]["time_s"]["mean"]

    def advice(self, least: str = "suggest") -> list[str]:
        """Return the rules whose advice is at or above a severity, in the order of the plan."""
        levels = {"info": 0, "suggest": 1, "action": 2}
        return [
            advice["rule"]
            for advice in self.whole["advice"]
            if levels.get(advice["severity"], 0) >= levels[least] and not advice["held_back"]
        ]


class Bench:
    """Start programs that end by the deadline; keep recordings under `runs`, and what is carried away in `folder`."""

    def __init__(self, folder: Path, runs: Path, deadline: float, *, dry: bool, site: Path | None = None) -> None:
        self.folder, self.runs, self.deadline, self.dry = folder, runs, deadline, dry
        self.runs.mkdir(parents=True, exist_ok=True)
        paths = [str(ROOT), *([str(site)] if site else []), os.environ.get("PYTHONPATH", "")]
        self.environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        self.environment["PROFILE_TRAIN_CALIBRATION"] = os.devnull
        self._child: subprocess.Popen[str] | None = None

    def plain(self, program: str, *args: object, **environment: str) -> Ran:
        """Run a program of `programs/` as it is."""
        return self._run([sys.executable, str(PROGRAMS / program), *map(str, args)], environment)

    def recorded(
        self, program: str | Path, *args: object, name: str, options: tuple[str, ...] = (), **environment: str
    ) -> Ran:
        """Run a program under profile-train; its recording is kept as `name`."""
        path = program if isinstance(program, Path) else PROGRAMS / program
        folder = self.runs / name
        return self._run([*COMMAND, *options, "--out", str(folder), str(path), *map(str, args)], environment, folder)

    def command(self, *words: object) -> Ran:
        """Run `profile-train` with these words."""
        return self._run([*COMMAND, *map(str, words)], {})

    def stop(self) -> None:
        """End the program that runs now, with all that it started."""
        if self._child is not None and self._child.poll() is None:
            os.killpg(self._child.pid, signal.SIGKILL)

    def _run(self, words: list[str], environment: dict[str, str], folder: Path | None = None) -> Ran:
        left = self.deadline - time.monotonic()
        if left < 1:
            raise Failed("no time left")
        # With torch.compile, both runs must compile: results of a warm cache may differ in the last bit.
        cache = tempfile.mkdtemp(prefix="compiled-", dir=self.runs.parent)
        begin = time.monotonic()
        self._child = child = subprocess.Popen(
            words,
            env=self.environment | {"TORCHINDUCTOR_CACHE_DIR": cache} | environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        try:
            out, err = child.communicate(timeout=left)
        except subprocess.TimeoutExpired:
            self.stop()
            child.communicate()
            raise Failed(f"exceeded the remaining {left:.0f} s") from None
        return Ran(child.returncode, out, err, time.monotonic() - begin, folder)
