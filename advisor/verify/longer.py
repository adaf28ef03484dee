"""Recommend how much longer a trial that was too noisy should be."""

import math

from advisor.stats.significance import DETECTION, NO_SPEEDUP, steps_per_arm
from advisor.units import share
from advisor.verify.arm import WARM_UP

# Least gain to look for: smaller ones would take hundreds of steps at an ordinary spread.
LEAST_EFFECT = 0.03

# Factor on the step noise up to which varying steps alone explain why processes differ: a few processes do not show
# their differences more precisely.
BY_CHANCE = 1.5

# Least factor on the number of steps, even if that number should have been enough.
LEAST_MORE = 1.5

# Limit of the command line.
MOST_PROCESSES = 20


def longer(effect: float, *, steps: int, steps_noise: float, processes: int, process_noise: float) -> str:
    """Return how to find a gain of `effect` 8 times in 10, in a sentence.

    `steps` were measured in each of the `processes` of an arm. `steps_noise` is the part of the standard deviation of
    the log of the ratio of two arms that comes from varying steps. `process_noise` is the standard deviation of the log
    of one process's time.
    """
    effect = max(LEAST_EFFECT, effect)
    goal = f"to find a gain of {share(effect)},"
    effect -= NO_SPEEDUP - 1  # speed-ups below NO_SPEEDUP count as none
    if process_noise * math.sqrt(2 / processes) <= BY_CHANCE * steps_noise:
        number = WARM_UP + math.ceil(steps * max(LEAST_MORE, (steps_noise * DETECTION / effect) ** 2))
        return f"Step times vary: {goal} use --steps {number}."
    number = max(processes + 1, steps_per_arm(process_noise, effect))
    message = f"Runs differ from one another by {share(process_noise)}: {goal}"
    if number > MOST_PROCESSES:
        return f"{message} {number} runs of each kind are needed. An idle machine helps more."
    return f"{message} use --repeats {number}."
