from harness import DoesNotFire, Fires, NotMeasured, given

from advisor.metrics.between import evaluation_share, evaluations
from advisor.models.state import State


def evaluating(part, number=5):
    return given({evaluation_share: part, evaluations: number})


CASES = [
    Fires(
        "evaluation takes three quarters of the run: every 12th evaluation is advised",
        evaluating(0.75),
        code="% 12 == 0",
        state=State(phases={"forward": 0.01}, between={"evaluation": 0.03}),
        removed=(0.55, 0.6875, 0.6875),
    ),
    Fires("exactly at the limit: every second evaluation is advised", evaluating(1 / 3), code="% 2 == 0"),
    Fires("only evaluation was recorded", evaluating(1.0), code="% 400 == 0"),
    DoesNotFire("less than a third", evaluating(0.32)),
    DoesNotFire("a single evaluation has no interval", evaluating(0.75, number=1)),
    NotMeasured("no evaluation was seen", given({evaluation_share: 0.75})),
    NotMeasured("evaluation time is unknown", given({evaluations: 5})),
]
