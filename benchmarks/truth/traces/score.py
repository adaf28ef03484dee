"""Check the first advice on traces for which the right advice is known.

    python benchmarks/truth/traces/score.py [FOLDER]

Made traces are written by a small simulation, each with one fault or none (labeled.py). FOLDER contains public traces
(real.py). The first advice above information must be a right one; a healthy trace must have none.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[2]))

import checkout  # noqa: F401
from labeled import TABLE
from real import LABELS

from advisor.publish import report_of
from advisor.runs.traces import load as load_traces

RIGHT = 0.9
"""Least share of the faulty traces whose first advice is right. No healthy trace may have any advice."""


def first_advice(path: Path) -> str | None:
    """Return the rule of the first advice above information."""
    return next((item.rule for item in report_of(load_traces([path])).advice if item.severity != "info"), None)


def main() -> int:
    """Print a line for each trace; return 1 if a bar is missed."""
    hits = faulty = alarms = 0
    with tempfile.TemporaryDirectory() as folder:
        traces = [(each.name, each.right, each.make().write(Path(folder) / f"{each.name}.json.gz")) for each in TABLE]
        for path in sorted(Path(sys.argv[1]).glob("*.json.gz")) if len(sys.argv) > 1 else ():
            if path.name.removesuffix(".json.gz") in LABELS:
                traces.append((path.name, LABELS[path.name.removesuffix(".json.gz")][0], path))
        for name, right, path in traces:
            first = first_advice(path)
            is_right = first in right if right else first is None
            print(f"{'ok' if is_right else 'MISS':5}{name:32}{first or '-':24}{'' if is_right else ' or '.join(right)}")
            faulty += bool(right)
            hits += bool(right) and is_right
            alarms += not right and not is_right
    print(f"Right first advice: {hits} of {faulty}. Alarms: {alarms} of {len(traces) - faulty}.")
    return int(hits < RIGHT * faulty or alarms > 0)


if __name__ == "__main__":
    sys.exit(main())
