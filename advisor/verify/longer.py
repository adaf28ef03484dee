"""Recommend how much longer a trial that was too noisy should be."""

import math

from advisor.stats.significance import DETECTION, NO_SPEEDUP, steps_per_arm
from advisor.units import share
from advisor.verify.arm import WARM_UP

# Smaller gains are not looked for: they would take hundreds of steps at an ordinary spread.
LEAST_EFFECT = 0.03

# Processes whose steps vary differ by that as well, and from a few of them it is known no better.
BY_CHANCE = 1.5

# Times the steps, where by rights as many should have been enough.
LEAST_MORE = 1.5

# The command line takes no more.
MOST_PROCESSES = 20


def longer(effect: float, *, steps: int, steps_noise: float, processes: int, process_noise: float) -> str:
    """Return what would find a gain of `effect` 8 times in 10, in a sentence.

    `steps` were measured in each of the `processes` of an arm. Noise is the standard deviation of the log of the ratio
    of two arms, as varying steps within processes and the differences of one process from others contribute to it.
    """
    effect = max(LEAST_EFFECT, effect)
    goal = f"to find a gain of {share(effect)},"
    effect -= NO_SPEEDUP - 1  # by so much it has to differ from none
    if process_noise * math.sqrt(2 / processes) <= BY_CHANCE * steps_noise:
        needed = WARM_UP + math.ceil(steps * max(LEAST_MORE, (steps_noise * DETECTION / effect) ** 2))
        return f"Step times vary: {goal} use --steps {needed}."
    needed = max(processes + 1, steps_per_arm(process_noise, effect))
    differ = f"Runs differ from one another by {share(process_noise)}: {goal}"
    if needed > MOST_PROCESSES:
        return f"{differ} {needed} runs of each kind are needed. An idle machine helps more."
    return f"{differ} use --repeats {needed}."
