from harness import DoesNotFire, Fires, NotMeasured, given

from advisor.metrics.between import evaluation_share
from advisor.metrics.settings import evaluation_grad
from advisor.models.state import State
from advisor.rules.base import Intervention, Safety

CASES = [
    Fires(
        "half of the run is evaluation with gradients",
        given({evaluation_grad: True, evaluation_share: 0.5}),
        code="torch.inference_mode()",
        state=State(phases={"forward": 0.01}, between={"evaluation": 0.01}),
        removed=(0.0, 0.05, 0.15),
        intervention=Intervention(
            name="evaluation",
            settings={},
            safety=Safety.EXACT,
            leaves="inference mode, under torch.no_grad()",
        ),
    ),
    Fires("evaluation with gradients takes 0.1 % of the run", given({evaluation_grad: True, evaluation_share: 0.001})),
    DoesNotFire("evaluation without gradients", given({evaluation_grad: False, evaluation_share: 0.5})),
    DoesNotFire("no evaluation in the recorded part of the run", given({evaluation_grad: True, evaluation_share: 0.0})),
    NotMeasured("no evaluation was seen", given({evaluation_share: 0.0})),
    NotMeasured("evaluation time is unknown", given({evaluation_grad: True})),
]
