"""Measure how often trials find a gain or a harm where there is none.

    python benchmarks/false_positives.py            20 rounds; about 12 minutes on two quiet cores
    python benchmarks/false_positives.py --runs 2   to check that it works

Each round tests samples/healthy.py in two ways. First as a user does: `profile-train --verify` tries whatever is
advised, and there should be nothing to confirm. Then the program is compared with itself (A/A): processes take turns
as in any trial, none of them is changed, and any speedup is judged as if it had been predicted. A verdict of
confirmed, better, partial or harmful is false in both. The bar is 5 % of the rounds, for each way.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from checkout import COMMAND, ROOT

from advisor.judging.verdict import Verdict
from advisor.verify import kept
from advisor.verify.arm import TrialFailed, read
from advisor.verify.judgment import judged
from advisor.verify.pace import LEAST_STEPS, WARM_UP
from advisor.verify.process import run_once
from advisor.verify.trials import order
from profiler.trial import Program

HEALTHY = ROOT / "samples" / "healthy.py"
BAR = 0.05
PROCESSES = 3
STEPS = WARM_UP + LEAST_STEPS
PATIENCE = 600


@dataclass(frozen=True)
class Tally:
    """The rounds of one way of testing."""

    name: str
    rounds: tuple[tuple[Verdict, ...], ...]
    """The verdicts of each round."""

    @property
    def false(self):
        return sum(any(is_false(verdict) for verdict in verdicts) for verdicts in self.rounds)

    @property
    def is_within(self):
        return self.false <= BAR * len(self.rounds)

    def __str__(self):
        counted = Counter(verdict.value for verdicts in self.rounds for verdict in verdicts)
        verdicts = ", ".join(f"{number} {verdict}" for verdict, number in sorted(counted.items())) or "nothing to try"
        found = f"{self.false} of {len(self.rounds)} rounds false"
        return f"{self.name:20} {found} (bar {BAR:.0%}: {'ok' if self.is_within else 'above'}); {verdicts}"


def is_false(verdict):
    """Return whether the verdict is false, because nothing was changed or had to be."""
    return verdict.is_kept or verdict is Verdict.HARMFUL


def as_a_user(folder):
    """Return the verdicts on what is advised for the healthy program."""
    options = ("--out", folder, "--verify", "--yes", "--calibration", os.devnull)
    done = subprocess.run([*COMMAND, *options, HEALTHY], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return tuple(tried.verdict for tried in kept.read(folder).values())


def against_itself(folder):
    """Return the verdict on no change."""
    program, arms = Program(words=(str(HEALTHY),), cwd=str(HEALTHY.parent)), ([], [])
    for number, second in enumerate(order(PROCESSES)):
        out = folder / f"process-{number}"
        run_once(program, (), out, STEPS, patience=PATIENCE)
        arms[second].append(read(out, Path(f"{out}.log")))
    return (judged(*arms, None, same_losses=True).verdict,)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20, help="rounds  [20]")
    args = parser.parse_args()
    ways = {"healthy, verified": as_a_user, "healthy, A/A": against_itself}
    rounds = {name: [] for name in ways}
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="false-positives-") as folder:
        for number in range(args.runs):
            for name, way in ways.items():
                place = Path(folder) / f"{number}-{way.__name__}"
                try:
                    rounds[name].append(way(place))
                except TrialFailed as failed:
                    sys.exit(f"{name}, round {number + 1}: {failed}")
            verdicts = "; ".join(f"{name}: {[each.value for each in rounds[name][-1]]}" for name in ways)
            print(f"{number + 1} of {args.runs}, {time.monotonic() - began:.0f} s. {verdicts}", file=sys.stderr)
    tallies = [Tally(name, tuple(found)) for name, found in rounds.items()]
    print(f"{PROCESSES} processes of {STEPS} steps each way, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    print(*tallies, sep="\n")
    sys.exit(0 if all(tally.is_within for tally in tallies) else 1)


if __name__ == "__main__":
    main()
