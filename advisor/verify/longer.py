"""Recommend how much longer a trial that was too noisy should be."""

import math
from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """Uncertainty of the ratio of two arms, as standard deviations of its log."""

    steps: float
    """Contribution of the varying steps within processes."""
    process: float
    """Contribution of one process: how far processes of the same program differ."""


def longer(noise: Noise, effect: float, steps: int, processes: int) -> str:
    """Return what would find a gain of `effect` 8 times in 10, in a sentence.

    `steps` were measured in each of the `processes` of an arm.
    """
    effect = max(LEAST_EFFECT, effect)
    goal = f"finding a gain of {share(effect)} takes"
    effect -= NO_SPEEDUP - 1  # by so much it has to differ from none
    if noise.process * math.sqrt(2 / processes) <= BY_CHANCE * noise.steps:
        needed = WARM_UP + math.ceil(steps * max(LEAST_MORE, (noise.steps * DETECTION / effect) ** 2))
        return f"The steps vary: {goal} --steps {needed}."
    needed = max(processes + 1, steps_per_arm(noise.process, effect))
    if needed > MOST_PROCESSES:
        return (
            f"Its runs differ from one another by {share(noise.process)}: {goal} {needed} of each. "
            "An idle machine helps more."
        )
    return f"Its runs differ from one another by {share(noise.process)}: {goal} --repeats {needed}."
