from harness import DoesNotFire, Fires, NotMeasured, given

from advisor.metrics.step import gc_fraction
from advisor.models.state import State

CASES = [
    Fires(
        "a tenth of the step",
        given({gc_fraction: 0.1}),
        code="gc.freeze()",
        then="10% of the step",
        state=State(phases={"gc": 0.01, "forward": 0.03, "backward": 0.06}),
        removed=(0.05, 0.08, 0.1),
        by_hand=True,
    ),
    Fires("just above the limit", given({gc_fraction: 0.0301})),
    DoesNotFire("just below the limit", given({gc_fraction: 0.0299})),
    NotMeasured("no steps", given({})),
]
