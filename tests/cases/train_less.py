from harness import DoesNotFire, Fires, NotMeasured, given

from advisor.metrics.base import Goals
from advisor.models.state import State


def validated(*values: float):
    return given({}, Goals(validation=values or None))


RISING = (0.5, 0.6, 0.7, 0.75)

CASES = [
    Fires(
        "six validations after the run could have stopped: 6 of 15",
        validated(*RISING, *[0.749] * 11),
        code=("waited >= 5", "best + 0.001 * abs(best)"),
        then="after 60% of it",
        note="the best was number 4",
        state=State(phases={"forward": 0.03, "backward": 0.07}),
        removed=(0.2, 0.32, 0.4),
        fault=False,
    ),
    Fires("just above the limit: flat for five", validated(*RISING, *[0.75] * 5), then="that is now", no_gain=True),
    DoesNotFire("just below the limit: flat for four", validated(*RISING, *[0.75] * 4)),
    DoesNotFire("a plateau, then an improvement", validated(*RISING, *[0.75] * 9, 0.8)),
    DoesNotFire("a slow but steady improvement", validated(*(0.7 + 0.0005 * step for step in range(40)))),
    Fires("every validation is worse than the one before", validated(*(0.7 - 0.01 * step for step in range(10)))),
    NotMeasured("too few validations to detect a plateau", validated(0.7, 0.7, 0.7, 0.7, 0.7)),
    NotMeasured("no validations were declared", validated()),
]
