from harness import DoesNotFire, Fires, NotMeasured, given

from advisor.metrics.hardware import capped_clock_ratio, power_cap
from advisor.models.state import State

LOWERED = {power_cap: 0.5, capped_clock_ratio: 0.7}

CASES = [
    Fires(
        "the power limit is half of the rated power",
        given(LOWERED),
        code="nvidia-smi -q -d POWER",
        then="50% of",
        state=State(phases={"data_wait": 0.01, "forward": 0.03, "backward": 0.06}),
        removed=(0.0, 0.09 * 0.3 * 0.4 / 0.1, 0.09 * 0.3 * 0.9 / 0.1),
        by_hand=True,
    ),
    Fires("the power limit just below 90 % of the rated power", given({**LOWERED, power_cap: 0.899})),
    DoesNotFire("the power limit just above 90 % of the rated power", given({**LOWERED, power_cap: 0.901})),
    Fires("the clock just below 90 % of its maximum", given({**LOWERED, capped_clock_ratio: 0.899})),
    DoesNotFire("the clock just above 90 % of its maximum", given({**LOWERED, capped_clock_ratio: 0.901})),
    NotMeasured("no GPU", given({})),
]
