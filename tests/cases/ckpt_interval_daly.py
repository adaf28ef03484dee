from harness import DoesNotFire, Fires, NotMeasured, given

from advisor.metrics.base import Goals, Missing
from advisor.metrics.between import (
    checkpoint_interval,
    checkpoint_save_seconds,
    checkpoint_save_share,
    checkpoint_save_uncertainty,
    checkpoint_saves,
)
from advisor.metrics.step import step_time_mean
from advisor.models.state import State


def saving(share: float = 1 / 3, seconds: float = 0.5, saves: int = 12, **more: object):
    return {
        checkpoint_save_share: share,
        checkpoint_saves: saves,
        checkpoint_save_seconds: seconds,
        checkpoint_interval: seconds * (1 - share) / share,
        step_time_mean: 0.2,
        **more,
    }


def every(interval: float, mtbf: float | None, save: float = 20.0):
    return given(saving(save / (save + interval), save), Goals(mtbf=mtbf))


STATE = State(phases={"forward": 0.2}, between={"checkpoint_save": 0.1})

CASES = [
    Fires(
        "a checkpoint of 0.5 s after every second of training: 24.5 s between checkpoints is advised",
        given(saving()),
        code="step % 123 == 0",
        absent="async_save",
        then="59.7 s if it fails once an hour and 4 min 54 s if it fails once a day",
        note="every 1 s of training",
        state=STATE,
        # 23.5/24.5 of the 0.1 s: 80 %, all, and 50 % more: 20 % for the spread and 30 % for the steps
        removed=(0.256, 0.32, 0.48),
        fault=False,
    ),
    Fires(
        "checkpoint times vary little, so the gain's interval is narrower",
        given({**saving(), checkpoint_save_uncertainty: 0.01}),
        state=STATE,
        removed=(0.314, 0.32, 0.4215),
    ),
    Fires("checkpoints that take 20 s", given(saving(seconds=20.0)), code="async_save", then="in the background"),
    Fires("just above the limit", given(saving(0.021))),
    DoesNotFire("just below the limit", given(saving(0.019))),
    Fires("two checkpoints", given(saving(saves=2))),
    DoesNotFire("one checkpoint, at the end", given(saving(saves=1))),
    # Daly's interval for saves of 20 s and a failure every 2 h is 523 s
    Fires(
        "more than twice as often as the failure rate requires",
        every(261, 7200.0),
        then="every 2,618 steps (8 min 43 s)",
        # E = M/tau (e^((tau + delta)/M) - 1) of 523.4 s over that of 261 s, for M of 1, 2 and 4 h
        cost=(-0.001, 0.018, 0.027),
    ),
    DoesNotFire("just under twice as often, although checkpoints take 7 % of the time", every(262, 7200.0)),
    DoesNotFire("just over half as often", every(1045, 7200.0)),
    Fires(
        "less than half as often",
        every(1047, 7200.0),
        then="for a failure every 2 h",
        no_gain=True,
        cost=(0.0, 0.018, 0.055),
    ),
    DoesNotFire("a day between failures: 2 % of the time in checkpoints is right", every(980, 86400.0)),
    NotMeasured("checkpoints were not timed", given({**saving(), checkpoint_save_share: Missing("No", "Yes.")})),
    NotMeasured("steps were not timed", given({**saving(), step_time_mean: Missing("No", "Yes.")})),
]
