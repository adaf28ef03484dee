from harness import DoesNotFire, Fires, NotMeasured, given

from advisor.metrics.hardware import set_clock_ratio
from advisor.models.state import State

CASES = [
    Fires(
        "the clock is locked for a benchmark",
        given({set_clock_ratio: 0.7}),
        code="nvidia-smi -rgc",
        then="70% of",
        state=State(phases={"data_wait": 0.01, "forward": 0.03, "backward": 0.06}),
        removed=(0.0, 0.09 * 0.3 * 0.4 / 0.1, 0.09 * 0.3 * 0.9 / 0.1),
        by_hand=True,
    ),
    Fires("just below 90 % of the maximum clock", given({set_clock_ratio: 0.899})),
    DoesNotFire("just above 90 % of the maximum clock", given({set_clock_ratio: 0.901})),
    NotMeasured("no GPU", given({})),
]
