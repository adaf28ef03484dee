from harness import DoesNotFire, Fires, NotMeasured, given

from advisor.metrics.base import Missing
from advisor.metrics.input import batch_time, loader, workers_are_behind
from advisor.metrics.preprocessing import epochs_begun, preprocess_share
from advisor.metrics.step import data_wait_fraction
from advisor.models.state import State
from profiler.schema import LoaderFact, Place

UNKNOWN = Missing("It is unknown", "Name it.")


def decodes(wait=0.5, stage=0.8, epochs=3, behind=False):
    return given(
        {
            loader: LoaderFact(id=1, num_workers=2, dataset="Images", place=Place(file="train.py", line=9)),
            batch_time: 0.04,
            data_wait_fraction: wait,
            preprocess_share: stage,
            epochs_begun: epochs,
            workers_are_behind: behind,
        }
    )


CASES = [
    Fires(
        "images are decoded and resized in every epoch",
        decodes(),
        code="Kept",
        then="80% of the 40 ms",
        note="Images",
        state=State(phases={"forward": 0.01}, supply=0.02),
        removed=(0.48, 0.5, 0.5),
    ),
    Fires("preprocessing takes just over 40 % of a batch", decodes(stage=0.41)),
    DoesNotFire("preprocessing takes just under 40 % of a batch", decodes(stage=0.39)),
    Fires("the gain is just above the limit: 0.9 of 0.8 of the data wait", decodes(wait=0.07)),
    DoesNotFire("the gain is just below the limit: too little waiting for preprocessing", decodes(wait=0.069)),
    Fires("workers set the pace: all of the data wait is just above the limit", decodes(wait=0.051, behind=True)),
    DoesNotFire("workers set the pace: all of the data wait is just below the limit", decodes(wait=0.049, behind=True)),
    Fires("the second epoch has begun", decodes(epochs=2)),
    DoesNotFire("only one epoch", decodes(epochs=1)),
    NotMeasured("the program marks no preprocessing stage", decodes(stage=UNKNOWN)),
    NotMeasured("no epoch start was recorded", decodes(epochs=UNKNOWN)),
    NotMeasured("data wait was not measured", decodes(wait=UNKNOWN)),
]
