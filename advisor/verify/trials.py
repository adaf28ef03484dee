"""The trials of one change: which processes, in which order, and what they showed.

Arms alternate (A B B A A B ...), so that a machine that grows slower or faster favours neither. A process that has been
recorded already is not run again: a comparison that was cut off goes on where it was.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from advisor.models.effects import Triple
from advisor.rules.base import Intervention, Safety
from advisor.significance import steps_per_arm
from advisor.verify.arm import WARM_UP, Arm, TrialFailed, read
from advisor.verify.judgement import Judged, judged
from advisor.verify.process import Program, run_once

# Processes an arm: the least of which anything is known about how processes of one program differ.
PROCESSES = 3

# Steps measured in each process.
LEAST_STEPS, MOST_STEPS = 40, 400

# A process has this many times the time it should take, and time to start and to compile.
PATIENCE, START = 5.0, 300.0

Progress = Callable[[str, int, int], None]
"""Called with what runs next, how many processes are done, and of how many."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How the program's steps go, as recorded."""

    step_time: float
    """Seconds, mean."""
    cv: float
    """Spread over the mean."""


def steps_needed(pace: Pace, predicted: Triple | None, processes: int = PROCESSES) -> int:
    """Steps of each process, for the cautious end of the prediction to be found 8 times in 10."""
    effect = max(0.03, predicted[0] if predicted else 0.05)
    measured = math.ceil(steps_per_arm(pace.cv, effect) / processes)
    return WARM_UP + min(max(LEAST_STEPS, measured), MOST_STEPS)


def order(processes: int) -> Iterator[bool]:
    """False for the unchanged program, True for the changed one: A B B A A B B A ..."""
    for pair in range(processes):
        yield from (False, True) if pair % 2 == 0 else (True, False)


def compare(
    program: Program,
    pace: Pace,
    kept: Sequence[Intervention],
    change: Intervention,
    predicted: Triple | None,
    folder: Path,
    *,
    steps: int,
    processes: int = PROCESSES,
    progress: Progress = lambda what, done, of: None,
) -> Judged:
    """Run the program with the changes `kept`, and with `change` besides, in turns; recordings go into `folder`.

    Raises TrialFailed if a process told nothing, ProfilerError if there is no sandbox.
    """
    arms: tuple[list[Arm], list[Arm]] = ([], [])
    for done, treated in enumerate(order(processes)):
        progress("with the change" if treated else "without", done, 2 * processes)
        number = len(arms[treated]) + 1
        changes = (*kept, change) if treated else tuple(kept)
        out = folder / f"{'with' if treated else 'without'}-{number}"
        run_once(program, changes, out, steps, patience=START + PATIENCE * steps * pace.step_time)
        arms[treated].append(read(out, Path(f"{out}.log")))
    progress("done", 2 * processes, 2 * processes)
    try:
        return judged(*arms, predicted, same_losses=change.safety is Safety.NUMERICS)
    except ValueError as error:
        raise TrialFailed(f"The processes cannot be compared: {error}") from None
