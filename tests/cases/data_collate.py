from harness import DoesNotFire, Fires, NotMeasured, given

from advisor.metrics.input import (
    batch_tensors,
    batch_time,
    collate_share,
    loader,
    wait_without_preparing,
    workers_are_behind,
)
from advisor.metrics.step import data_wait_fraction, step_time_mean
from advisor.models.state import State
from profiler.schema import LoaderFact, Place

LISTS = {
    loader: LoaderFact(id=1, num_workers=1, dataset="Rows", collate="collate", place=Place(file="train.py", line=9)),
    batch_time: 0.02,
    collate_share: 0.8,
    data_wait_fraction: 0.6,
}
BEHIND = {**LISTS, workers_are_behind: True}


def without(metric):
    return given({key: value for key, value in LISTS.items() if key is not metric})


CASES = [
    Fires(
        "a collate function that builds lists, in a worker that sets the pace",
        given(LISTS),
        code=("np.stack", "__getitems__"),
        then="80% of the 20 ms",
        note="collate collates Rows",
        state=State(phases={"forward": 0.005, "backward": 0.003}, supply=0.02),
        removed=(0.4, 0.6, 0.6),
    ),
    Fires(
        "collation in the training process",
        given({**LISTS, loader: LoaderFact(id=1)}),
        state=State(phases={"forward": 0.008}, load=0.012),
        removed=(0.24, 0.384, 0.456),
    ),
    Fires(
        "torch's default collation: only the dataset can be changed",
        given({**LISTS, loader: LoaderFact(id=1, collate="default_collate")}),
        code="__getitems__",
        absent="np.stack",
    ),
    Fires(
        "samples are lists: torch creates a tensor for each position",
        given({**LISTS, loader: LoaderFact(id=1, collate="default_collate"), batch_tensors: 301}),
        then="is collation, into 301 tensors.",
    ),
    Fires("collation takes just over 40 % of a batch", given({**LISTS, collate_share: 0.41})),
    DoesNotFire("collation takes just under 40 % of a batch", given({**LISTS, collate_share: 0.39})),
    Fires("the gain is just above the limit: 0.8 of 0.8 of the data wait", given({**LISTS, data_wait_fraction: 0.079})),
    DoesNotFire(
        "the gain is just below the limit: too little waiting for collation",
        given({**LISTS, data_wait_fraction: 0.078}),
    ),
    DoesNotFire(
        "a tiny healthy program: it waits for data, but hardly for collation",
        given({**LISTS, loader: LoaderFact(id=1), data_wait_fraction: 0.13, collate_share: 0.45}),
    ),
    DoesNotFire(
        "a dataset that returns whole batches: torch converts them without collation",
        given({**LISTS, loader: LoaderFact(id=1, collate="default_convert")}),
    ),
    DoesNotFire(
        "a slow sampler: the step hardly waits for batches",
        given({**LISTS, loader: LoaderFact(id=1), step_time_mean: 0.05, wait_without_preparing: 0.028}),
    ),
    Fires(
        "workers set the pace: all of the data wait is just above the limit",
        given({**BEHIND, data_wait_fraction: 0.051}),
    ),
    DoesNotFire(
        "workers set the pace: all of the data wait is just below the limit",
        given({**BEHIND, data_wait_fraction: 0.049}),
    ),
    NotMeasured("no loader was seen", without(loader)),
    NotMeasured("collation was not timed", without(collate_share)),
    NotMeasured("data wait was not measured", without(data_wait_fraction)),
]
