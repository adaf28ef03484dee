from dataclasses import replace

from gpu_runs import FLAGS
from harness import DoesNotFire, Fires, NotMeasured, given

from advisor.metrics.between import recompile_share, recompiles
from advisor.metrics.settings import flags
from advisor.models.state import State

VARYING = {flags: FLAGS, recompiles: 30, recompile_share: 0.4}

CASES = [
    Fires(
        "30 steps with recompilations",
        given(VARYING),
        code=("dynamic=True", "TORCH_LOGS=recompiles"),
        then="40%",
        state=State(phases={"forward": 0.05, "backward": 0.05}, between={"evaluation": 0.01}),
        removed=(0.2, 0.32, 0.4),
    ),
    Fires(
        "recompilations only in the first ten steps: they do not repeat, and the cost of uncompiled code is unknown",
        given({**VARYING, recompiles: 8, recompile_share: 0.0}),
        then="runs it uncompiled",
        state=State(phases={"forward": 0.05, "backward": 0.05}),
        removed=(0.0, 0.0, 0.0),
    ),
    Fires("recompilations in 7 steps: 8 variants with the first", given({**VARYING, recompiles: 7})),
    DoesNotFire("recompilations in 6 steps", given({**VARYING, recompiles: 6})),
    DoesNotFire("nothing is compiled", given({**VARYING, flags: replace(FLAGS, compile=False)})),
    NotMeasured("the settings were not read", given({recompiles: 30, recompile_share: 0.4})),
    NotMeasured("no step was seen", given({flags: FLAGS})),
]
