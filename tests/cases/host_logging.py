from harness import DoesNotFire, Fires, NotMeasured, given

from advisor.metrics.host import leading_up_share, output_share, writes_per_step
from advisor.metrics.step import batches_per_step, data_wait_fraction, other_fraction, step_time_mean
from advisor.models.state import State
from advisor.rules.base import Intervention, Safety


def run(other=0.5, output=0.1, writes=2.0, step=0.02, batches=1.0):
    values = {other_fraction: other, output_share: output, writes_per_step: writes, step_time_mean: step}
    return given({**values, batches_per_step: batches})


def timed(other=0.69, output=0.03, leading_up=0.62, batches=1.0):
    """Return metrics of a step of 24 ms."""
    return given(
        {
            other_fraction: other,
            output_share: output,
            leading_up_share: leading_up,
            step_time_mean: 0.024,
            batches_per_step: batches,
        }
    )


def starved(output: float, wait: float, other: float = 0.14):
    """Return metrics of a step of 115 ms, most of it waiting for data."""
    return given(
        {
            other_fraction: other,
            output_share: output,
            leading_up_share: 0.13,
            data_wait_fraction: wait,
            step_time_mean: 0.115,
            batches_per_step: 1.0,
        }
    )


def step_of(other: float):
    return State(phases={"forward": 0.024 * (1 - other), "other": 0.024 * other})


CASES = [
    Fires(
        "the work leading up to the log was timed: at least half of it is saved",
        timed(),
        code="if step % 186 == 0:",  # 0.65 / (1 % of 0.35)
        then="log handlers, fsync and the work that leads up to them take 65%",
        state=step_of(0.69),
        # 185/186 of 0.03 and 0.62 times 0.5, 1 and, because `other` is at most 0.69, 1.06
        removed=(0.338, 0.6465, 0.69),
    ),
    Fires(
        "most of the other work does not lead up to a log: at best it is saved too",
        timed(other=0.6, output=0.02, leading_up=0.1),
        state=step_of(0.6),
        removed=(0.069, 0.119, 0.544),
    ),
    Fires(
        "histograms of every parameter, written and synced at every step",
        run(other=0.55, output=0.10, step=0.029),
        code="if step % 100 == 0:",  # half of the step goes: the log costs as much as the rest of it
        state=State(phases={"forward": 0.013, "other": 0.016}),
        removed=(0.099, 0.297, 0.495),
        intervention=Intervention(
            name="logging",
            settings={"every": 100},
            safety=Safety.EXACT,
            leaves="what the training loop itself computes for the log",
        ),
    ),
    Fires(
        "a simulator runs before the log line: how much work is for the log is unknown",
        timed(batches=0.0),
        then="log handlers and fsync alone take 3%",
        state=step_of(0.69),
        removed=(0.03, 0.333, 0.637),
    ),
    Fires("a log line takes 2 % of the step", run(other=0.06, output=0.02), code="if step % 3 == 0:"),
    Fires("logging just above the limit", run(other=0.06, output=0.0101)),
    DoesNotFire("logging just below the limit, and little other work", run(other=0.06, output=0.0099)),
    Fires(
        "logging just above the limit of a step that waits for data 75 % of the time",
        starved(output=0.0026, wait=0.75),
        code="if step % 113 == 0:",  # 0.1326 of 0.25 is 53 %: that over 1 % of the other 47 %
        state=State(phases={"forward": 0.115 * 0.11, "other": 0.115 * 0.14}, load=0.115 * 0.75),
        removed=(0.067, 0.131, 0.14),
    ),
    DoesNotFire(
        "logging just below the limit of a step that waits for data 75 % of the time", starved(output=0.0024, wait=0.75)
    ),
    DoesNotFire("short data wait is not subtracted from the step", starved(output=0.0099, wait=0.049)),
    DoesNotFire("almost only data wait", starved(output=0.02, wait=0.75, other=0.049)),
    DoesNotFire("other work just below that of a plain loop", run(other=0.049, output=0.04)),
    DoesNotFire("a log line in a tiny step", run(other=0.3, output=0.3, step=0.0006)),
    Fires(
        "every step writes, a quarter of the step is other work, and logging was not timed",
        run(other=0.26, output=0.0, writes=1.0),
        then="writes at every step; the time for logging was not measured",
        no_gain=True,  # so it is information
    ),
    DoesNotFire("a simulator with a progress bar", run(other=0.6, output=0.0, writes=1.0, step=0.3, batches=0.0)),
    DoesNotFire("other work, with a log line every ten steps", run(other=0.5, output=0.0, writes=0.1)),
    DoesNotFire("a log line per step, but just too little other work", run(other=0.24, output=0.0, writes=1.0)),
    DoesNotFire("a tiny step that prints and is mostly Python", run(other=0.6, output=0.0, writes=1.0, step=0.0003)),
    NotMeasured("writing was not observed", given({other_fraction: 0.5, step_time_mean: 0.02})),
    NotMeasured(
        "write calls cannot be counted on this system",
        given({other_fraction: 0.5, output_share: 0.0, step_time_mean: 0.02, batches_per_step: 1.0}),
    ),
]
