from harness import DoesNotFire, Fires, NotMeasured, given

from advisor.metrics.base import Missing
from advisor.metrics.gpu import Device, device, h2d_pageable_share
from advisor.metrics.input import loader
from advisor.metrics.settings import is_trace
from advisor.metrics.step import h2d_fraction, steady_step_count, step_time_mean, sync_causes
from advisor.models.state import State
from advisor.rules.base import Intervention, Safety
from profiler.schema import LoaderFact, Place

PAGEABLE = {
    device: Device(name="A100", capability=(8, 0), memory_total=80 << 30, count=1),
    loader: LoaderFact(id=1, num_workers=4, batch_device="cpu", place=Place(file="train.py", line=31)),
    h2d_fraction: 0.25,
    h2d_pageable_share: 1.0,
    step_time_mean: 0.1,
}

NO = Missing("No training step was seen", "Mark steps.")
TRACE = {**PAGEABLE, loader: NO, is_trace: True, steady_step_count: 1}

CASES = [
    Fires(
        "copies take a quarter of the step",
        given(PAGEABLE),
        code=("pin_memory=True,  # was False", "non_blocking=True"),
        state=State(phases={"h2d": 0.025, "forward": 0.075}),
        removed=(0.075, 0.125, 0.175),
        intervention=Intervention(
            name="loader",
            settings={"file": "train.py", "line": 31, "pin_memory": True, "non_blocking": True},
            safety=Safety.EXACT,
        ),
    ),
    Fires(
        "copies are part of the phase `other`",
        given(PAGEABLE),
        state=State(phases={"forward": 0.07, "other": 0.03}),
        removed=(0.075, 0.125, 0.175),
    ),
    Fires(
        "the source of the copies was not recorded, but the loader does not pin memory",
        given({key: value for key, value in PAGEABLE.items() if key is not h2d_pageable_share}),
    ),
    Fires("just above 3 %", given({**PAGEABLE, h2d_fraction: 0.0301})),
    DoesNotFire("just below 3 %", given({**PAGEABLE, h2d_fraction: 0.0299})),
    DoesNotFire("the copies are from pinned memory already", given({**PAGEABLE, h2d_pageable_share: 0.4})),
    DoesNotFire("the loader pins memory", given({**PAGEABLE, loader: LoaderFact(id=1, pin_memory=True)})),
    Fires(
        "the loader pins memory, but its copies block",
        given(
            {**PAGEABLE, loader: LoaderFact(id=1, pin_memory=True), h2d_fraction: 0.01, sync_causes: {"copy_in": 0.1}}
        ),
        code="non_blocking=True",
        state=State(phases={"forward": 0.07, "other": 0.03}),
        removed=(0.03, 0.05, 0.07),
    ),
    DoesNotFire(
        "the loader pins memory, and the wait has another cause",
        given({**PAGEABLE, loader: LoaderFact(id=1, pin_memory=True), sync_causes: {"item": 0.1}}),
    ),
    Fires(
        "most of the time is in copies that block the host",
        given({**PAGEABLE, h2d_fraction: 0.01, sync_causes: {"copy_in": 0.1}}),
        state=State(phases={"forward": 0.07, "other": 0.03}),
        removed=(0.033, 0.055, 0.077),
    ),
    DoesNotFire("batches are made on the GPU", given({**PAGEABLE, loader: LoaderFact(id=1, batch_device="cuda:0")})),
    Fires(
        "a trace, which shows no loader",
        given(TRACE),
        code="pin_memory=True",
        state=State(phases={"h2d": 0.025, "forward": 0.075}),
        removed=(0.075, 0.125, 0.175),
        by_hand=True,
    ),
    DoesNotFire("a trace with copies from pinned memory", given({**TRACE, h2d_pageable_share: 0.4})),
    DoesNotFire("a trace with few copies", given({**TRACE, h2d_fraction: 0.029})),
    NotMeasured(
        "a trace without steps, whose copies may be weights copied once", given({**TRACE, steady_step_count: NO})
    ),
    NotMeasured("no GPU", given({loader: LoaderFact(id=1)})),
    NotMeasured("copies were not timed", given({k: v for k, v in PAGEABLE.items() if k is not h2d_fraction})),
]
