from dataclasses import replace

from gpu_runs import FLAGS
from harness import DoesNotFire, Fires, NotMeasured, given

from advisor.metrics.between import recompile_share, recompiles
from advisor.metrics.settings import flags
from advisor.models.state import State

VARYING = {flags: FLAGS, recompiles: 30, recompile_share: 0.4}

CASES = [
    Fires(
        "30 steps of 100",
        given(VARYING),
        code=("dynamic=True", "TORCH_LOGS=recompiles"),
        then="40%",
        state=State(phases={"forward": 0.05, "backward": 0.05}, between={"evaluation": 0.01}),
        removed=(0.2, 0.32, 0.4),
    ),
    Fires(
        "all of it in the first ten steps: it is not paid again, and what runs uncompiled since is not known",
        given({**VARYING, recompiles: 8, recompile_share: 0.0}),
        then="runs it uncompiled",
        state=State(phases={"forward": 0.05, "backward": 0.05}),
        removed=(0.0, 0.0, 0.0),
    ),
    Fires("as many as make 8 variants with the first", given({**VARYING, recompiles: 7})),
    DoesNotFire("one less", given({**VARYING, recompiles: 6})),
    DoesNotFire("nothing is compiled", given({**VARYING, flags: replace(FLAGS, compile=False)})),
    NotMeasured("the settings were not read", given({recompiles: 30, recompile_share: 0.4})),
    NotMeasured("no step was seen", given({flags: FLAGS})),
]
