from dataclasses import replace

from harness import DoesNotFire, Fires, NotMeasured, given
from stack_places import NORMALIZE

from advisor.metrics.between import evaluation_share
from advisor.metrics.host import CoreUse, core_use
from advisor.metrics.lines import (
    hot_place,
    hot_place_between,
    hot_place_share,
    hot_place_share_low,
    hot_places,
    sampled_phases,
    stack_samples,
)
from advisor.metrics.settings import on_cpu
from advisor.metrics.step import (
    backward_fraction,
    data_wait_fraction,
    forward_fraction,
    forwards_per_step,
    gc_fraction,
    other_fraction,
    step_time_mean,
)
from advisor.models.state import State


def run(place=NORMALIZE, other=0.66, samples=450, forward=0.1, cpu=True, also=None, **changes):
    place = replace(place, **changes)
    values = {hot_place: place, stack_samples: samples, other_fraction: other, step_time_mean: 0.1, on_cpu: cpu}
    shares = {hot_place_share: place.share, hot_place_share_low: place.low, **(also or {})}
    shares = {sampled_phases: dict(place.phases or ((place.phase, place.share),)), **shares}
    return given({**values, **shares, **({} if forward is None else {forward_fraction: forward})})


STEP = State(phases={"forward": 0.03, "other": 0.07})

BOTH = tuple(replace(NORMALIZE, kind="pandas", library="pandas", share=part) for part in (0.66, 0.2))

WAIT = {data_wait_fraction: 0.66}
FORWARD = {"phase": "forward", "phases": (("forward", 0.6),), "share": 0.6}

CASES = [
    Fires(
        "two thirds of a step in one function",
        run(),
        then="66% of a step is normalize() in train.py:41",
        code="operations on whole tensors",
        state=STEP,
        removed=(0.0, 0.34, 0.67),
        by_hand=True,
    ),
    Fires(
        "the line's share of its phase's time is its share of the 396 samples there: 75 %, at most 77.7 %",
        run(also={sampled_phases: {"other": 0.88}}),
        state=STEP,
        removed=(0.0, 0.2575, 0.5227),
        by_hand=True,
    ),
    Fires(
        "other lines of the same kind may be removed too",
        run(kind="pandas", library="pandas", also={sampled_phases: {"other": 0.88}, hot_places: BOTH}),
        state=STEP,
        removed=(0.1918, 0.4316, 0.67),
        by_hand=True,
    ),
    Fires(
        "other work of the outer function may remain",
        run(kind="loop", outer="pairs", function="distance", inner=0.5),
        state=STEP,
        removed=(0.1313, 0.571, 0.67),
        by_hand=True,
    ),
    Fires(
        "cold caches cost more if other programs use the cores",
        run(also={core_use: CoreUse(cores=2, others=1.8, program=0.2)}),
        state=STEP,
        removed=(0.0, 0.38, 0.71),
        by_hand=True,
    ),
    Fires(
        "a loop in Python",
        run(kind="loop"),
        then="a loop in Python",
        state=STEP,
        removed=(0.264, 0.571, 0.67),
        by_hand=True,
    ),
    Fires(
        "an evaluation between steps",
        run(kind="loop", also={hot_place_between: 0.5}),
        state=State(phases={"other": 0.066}, between={"evaluation": 0.034}),
        removed=(0.332, 0.7155, 0.83),
        by_hand=True,
    ),
    Fires(
        "a loop in the Dataset",
        run(kind="loop", phase="data_wait", other=0.05, also=WAIT),
        state=State(phases={"forward": 0.034}, load=0.066),
        removed=(0.264, 0.571, 0.67),
        by_hand=True,
    ),
    Fires("work of an unknown kind in the Dataset", run(phase="data_wait", other=0.05, also=WAIT), then="66%"),
    Fires(
        "the Dataset is already where workers can run it",
        run(kind="loop", phase="data_wait", other=0.05, also=WAIT),
        then="Or let loader workers",
    ),
    Fires("a search in a list", run(kind="search"), then="in a dictionary"),
    Fires(
        "one row at a time, with its backward passes",
        run(kind="one_row", other=0.05, forward=0.6, also={forwards_per_step: 200.0}, **FORWARD),
        then="200 calls per step",
        state=State(phases={"forward": 0.06, "backward": 0.04}),
        removed=(0.3, 0.76, 1.0),
        by_hand=True,
    ),
    Fires(
        "a loss in a loop, with its backward pass",
        run(kind="loop", forward=0.01, also={backward_fraction: 0.3}),
        state=State(phases={"forward": 0.001, "backward": 0.03, "other": 0.066, "optimizer": 0.003}),
        removed=(0.372, 0.8, 0.94),
        by_hand=True,
    ),
    Fires(
        "the line's garbage collection is saved too",
        run(kind="loop", also={gc_fraction: 0.1}),
        state=State(phases={"forward": 0.024, "other": 0.066, "gc": 0.01}),
        removed=(0.304, 0.656, 0.77),
        by_hand=True,
    ),
    Fires(
        "the garbage collector, which hooks time separately",
        run(kind="gc", other=0.05, also={gc_fraction: 0.6}),
        then="garbage collector",
    ),
    Fires(
        "a loop with most of its time in a helper function",
        run(kind="loop", outer="pairs", function="distance"),
        then="pairs(), most of it distance() in train.py:41",
    ),
    Fires(
        "a sampler, which does not run in loader workers",
        run(kind="sampler", phase="data_wait", outer="Curriculum.__iter__", inner=0.5, other=0.05, also=WAIT),
        then="even if the loader has workers",
        state=State(phases={"forward": 0.034, "loader_overhead": 0.06}, load=0.006),
        removed=(0.264, 0.571, 0.67),
        by_hand=True,
    ),
    Fires("a loop over parameters", run(kind="parameters"), then="AveragedModel"),
    Fires("tensors from lists", run(kind="lists"), then="tensors from Python lists"),
    Fires("an evaluation in each step, which hooks do not recognize", run(kind="evaluation"), then="an evaluation"),
    DoesNotFire("an evaluation that hooks time between steps", run(kind="evaluation", also={evaluation_share: 0.5})),
    Fires("a sleep", run(kind="sleep"), then="where time.sleep() waits", code="Take the sleep out"),
    Fires("a generator", run(kind="generator"), code="IterableDataset"),
    Fires("just above the limit", run(share=0.201, low=0.15)),
    Fires("a plot", run(library="matplotlib", called="Figure.savefig"), code="if step % 100 == 0"),
    Fires("a standard module", run(library="gzip", called="GzipFile.read"), code="Unpack once"),
    Fires("the line may contain the model: no gain is predicted", run(forward=None), then="66%"),
    Fires("on a GPU, the host may only wait there: no gain is predicted", run(cpu=False), then="66%"),
    Fires("a line of the training loop that calls no Python function", run(whole=False), then="66%"),
    DoesNotFire("the same line with a GPU: the host may only wait there", run(whole=False, cpu=False)),
    DoesNotFire("just below the limit", run(share=0.199, low=0.15)),
    DoesNotFire("the model itself", run(other=0.05, forward=0.6, **FORWARD)),
    DoesNotFire("the share is too uncertain", run(share=0.25, low=0.09)),
    DoesNotFire("too few samples", run(samples=9)),
    DoesNotFire("hooks measured too little time outside the phases", run(other=0.14)),
    DoesNotFire("the loss, on a line of the training loop", run(whole=False, library="torch", called="cross_entropy")),
    NotMeasured("stacks were not sampled", given({other_fraction: 0.7, step_time_mean: 0.1})),
]
