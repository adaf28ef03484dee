"""Check that the report names the planted line first, and that removing the fault gains what was predicted.

    python benchmarks/truth/lines/score.py [FOLDER] [--only NAME,...] [--verify] [--seconds 8]

Each program in programs/ has one slow place, on lines marked "# planted", or none (healthy_*). It is recorded as a user
would. The first line that the report names, in its first sentence or its first advice, must be a planted one; in a
healthy program no line may be named. With --verify, each program is recorded once more with `--fixed`, which removes
the fault, and the gain must lie in the interval that the advice on the line predicted. Advice that `verify` can apply
is a different change from the one made by hand, so it counts only where there is no advice by hand. The gain is
measured by the program's clock, minus the time for which it waited for a core that other programs used.

FOLDER keeps the recordings; those already there are judged again. A program whose library is not installed is skipped.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[2]))

from checkout import COMMAND

from advisor.publish import report_of
from advisor.report.conclusion import conclude, named
from advisor.report.report import Report
from advisor.runs.load import load

PROGRAMS = Path(__file__).resolve().with_name("programs")
RIGHT = 22 / 24
"""Least share of the faulty programs whose planted line is named first. No line of a healthy one may be named."""
COVERED = 0.8
"""Least share of the predictions whose interval contains the measured gain."""
SLACK = 0.03
"""Share of the step by which two recordings of one program differ."""


def recorded(name: str, folder: Path, seconds: float, *words: str) -> Report | None:
    """Record a program, unless a recording exists, and judge it; return None if it cannot run here."""
    run = folder / "-".join([name, *(word.strip("-") for word in words)])
    if not (run / "result.json").exists():
        line = [*COMMAND, "--out", str(run), str(PROGRAMS / f"{name}.py"), *words]
        environment = {key: value for key, value in os.environ.items() if not key.startswith("PROFILE_TRAIN")}
        environment |= {"SECONDS": str(seconds), "OMP_NUM_THREADS": "1", "PROFILE_TRAIN_CALIBRATION": os.devnull}
        environment["SECONDS_PER_STEP"] = str(folder / f"{run.name}.seconds")
        with tempfile.TemporaryDirectory() as here, open(folder / f"{run.name}.log", "w+") as log:
            status = subprocess.run(line, cwd=here, env=environment, stdout=log, stderr=log, check=False).returncode
            log.seek(0)
            if "ModuleNotFoundError" in log.read():
                return None
        if status:
            raise SystemExit(f"{name} ended with {status}: see {log.name}")
    return report_of(load(run), run)


def planted(name: str) -> set[int]:
    """Return the numbers of a program's marked lines."""
    lines = (PROGRAMS / f"{name}.py").read_text().splitlines()
    return {number for number, line in enumerate(lines, 1) if re.search(r"# planted$", line)}


def prediction(report: Report, lines: set[int]) -> tuple[float, float] | None:
    """Return the interval of the gain predicted by the first advice on a planted line, preferring advice by hand."""
    found = [item for item in report.advice if item.finding.alone and item.place and item.place[1] in lines]
    found.sort(key=lambda item: item.finding.advice.intervention is not None)
    return next(((gain.low, gain.high) for item in found if (gain := item.finding.alone)), None)


def gain(name: str, folder: Path) -> float:
    """Return the share of a step that is saved by removing the fault."""
    before, after = (json.loads((folder / f"{run}.seconds").read_text()) for run in (name, f"{name}-fixed"))
    return 1 - after / before


def main() -> int:
    """Print a line for each program; return 1 if a bar is missed."""
    asked = argparse.ArgumentParser()
    asked.add_argument("folder", nargs="?", type=Path)
    asked.add_argument("--only", default="")
    asked.add_argument("--verify", action="store_true")
    asked.add_argument("--seconds", type=float, default=8.0)
    options = asked.parse_args()
    folder = options.folder.resolve() if options.folder else Path(tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    names = options.only.split(",") if options.only else sorted(each.stem for each in PROGRAMS.glob("*.py"))
    hits = faulty = alarms = covered = predicted = 0
    for name in names:
        if name == "clock":
            continue
        report = recorded(name, folder, options.seconds)
        if report is None:
            print(f"SKIP {name}: a library is missing")
            continue
        lines, found = planted(name), conclude(report)
        place = found.line if lines or named(report) or found.kind == "act" else None
        is_right = place in lines if lines else place is None
        faulty += bool(lines)
        hits += bool(lines) and is_right
        alarms += not lines and not is_right
        row = f"{'ok' if is_right else 'MISS':5}{name:20}{place or '-':>5} {found.kind:12}{found.rule or '-':22}"
        if options.verify and lines:
            after = recorded(name, folder, options.seconds, "--fixed")
            interval = prediction(report, lines)
            if after:
                measured = gain(name, folder)
                inside = interval is not None and interval[0] - SLACK <= measured <= interval[1] + SLACK
                predicted += interval is not None
                covered += inside
                bounds = "none" if interval is None else f"{interval[0]:.0%} to {interval[1]:.0%}"
                row += f" predicted {bounds}, measured {measured:.0%}{'' if inside else '  <-'}"
        print(row, flush=True)
    print(
        f"Right line first: {hits} of {faulty}. Lines named in healthy ones: {alarms}. Covered: {covered}/{predicted}."
    )
    return int(hits < RIGHT * faulty or alarms > 0 or covered < COVERED * predicted)


if __name__ == "__main__":
    sys.exit(main())
