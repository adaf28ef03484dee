from harness import Blind, Fires, Silent, given

from advisor.metrics.base import Goals
from advisor.metrics.step import step_time_mean

STEP = {step_time_mean: 0.1}

CASES = [
    Fires("nothing was declared", given(STEP), code=("--goal", "--quality"), then="100 ms", no_gain=True, fault=False),
    Silent("more memory is wanted", given(STEP, Goals(capacity=True))),
    Silent("a batch is wanted", given(STEP, Goals(target_batch=64))),
    Silent("a price was given", given(STEP, Goals(gpu_price=2.5))),
    Blind("there was no step to have a goal for", given({})),
]
