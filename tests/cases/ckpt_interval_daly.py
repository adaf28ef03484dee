from harness import Blind, Fires, Silent, given

from advisor.metrics.base import Missing
from advisor.metrics.step import checkpoint_save_seconds, checkpoint_save_share, checkpoint_saves, step_time_mean
from advisor.models.state import State


def saving(share: float = 1 / 3, seconds: float = 0.5, saves: int = 12, **_: object):
    return {
        checkpoint_save_share: share,
        checkpoint_saves: saves,
        checkpoint_save_seconds: seconds,
        step_time_mean: 0.2,
    }


CASES = [
    Fires(
        "half a second after every second of training: 24.5 s between two",
        given(saving()),
        code="step % 123 == 0",
        absent="async_save",
        then="fails every 10 min",
        note="every 1 s of training",
        state=State(phases={"forward": 0.2}, between={"checkpoint_save": 0.1}),
        removed=(0.256, 0.32, 0.333),
        fault=False,
    ),
    Fires("long saves", given(saving(seconds=20.0)), code="async_save", then="in the background"),
    Fires("just above the limit", given(saving(0.021))),
    Silent("just below the limit", given(saving(0.019))),
    Fires("two saves", given(saving(saves=2))),
    Silent("one, at the end", given(saving(saves=1))),
    Blind("saves were not timed", given({**saving(), checkpoint_save_share: Missing("No", "Yes.")})),
    Blind("steps were not timed", given({**saving(), step_time_mean: Missing("No", "Yes.")})),
]
