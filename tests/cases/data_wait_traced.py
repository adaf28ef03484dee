from harness import DoesNotFire, Fires, NotMeasured, given

from advisor.metrics.base import Missing
from advisor.metrics.gpu import traced_kernels
from advisor.metrics.step import data_wait_fraction, steady_step_count, steady_steps
from advisor.metrics.traced import traced_workers
from advisor.models.state import State
from profiler.schema import Step


def steps(*waits):
    return tuple(
        Step(pid=0, index=number, start=0.1 * number, duration=0.1, data_wait=0.1 * wait)
        for number, wait in enumerate(waits)
    )


WAITING = {
    traced_workers: False,
    data_wait_fraction: 0.5,
    steady_steps: steps(0.5, 0.5, 0.5),
    steady_step_count: 3,
    traced_kernels: 500,
}
HALF = State(phases={"forward": 0.05}, load=0.05)

CASES = [
    Fires(
        "data wait is half of the step, without workers",
        given(WAITING),
        code="num_workers=2",
        state=HALF,
        removed=(0.25, 0.425, 0.5),
        by_hand=True,
    ),
    Fires(
        "data wait is half of the step, despite workers",
        given({**WAITING, traced_workers: True}),
        then="Raise num_workers",
        state=HALF,
        removed=(0.05, 0.25, 0.475),
    ),
    Fires("just above the limit", given({**WAITING, data_wait_fraction: 0.051})),
    DoesNotFire("just below the limit", given({**WAITING, data_wait_fraction: 0.049})),
    DoesNotFire("a single long wait", given({**WAITING, steady_steps: steps(0.99, 0.01, 0.01)})),
    Fires(
        "every third step waits: workers deliver at the same time",
        given({**WAITING, steady_steps: steps(0, 0, 0.9, 0, 0, 0.9)}),
    ),
    DoesNotFire("a trace of one step", given({**WAITING, steady_step_count: 1})),
    DoesNotFire("too few kernels", given({**WAITING, traced_kernels: 29})),
    NotMeasured("not a trace", given({**WAITING, traced_workers: Missing("This is not a trace", "Nothing.")})),
]
