from harness import DoesNotFire, Fires, NotMeasured, given

from advisor.metrics.gpu import Device, device, h2d_pageable_share
from advisor.metrics.input import batch_bytes, loader
from advisor.metrics.settings import is_trace
from advisor.metrics.step import h2d_fraction, steady_step_count, step_time_mean
from advisor.models.state import State
from profiler.schema import LoaderFact

PINNED = {
    device: Device(name="A100", capability=(8, 0), memory_total=80 << 30, count=1),
    loader: LoaderFact(id=1, num_workers=4, batch_device="cpu", pin_memory=True),
    batch_bytes: 50_000_000,
    h2d_fraction: 0.2,
    h2d_pageable_share: 0.0,
    step_time_mean: 0.1,
}
TRACE = {key: value for key, value in PINNED.items() if key is not loader} | {is_trace: True, steady_step_count: 3}
UNKNOWN_SOURCE = {key: value for key, value in PINNED.items() if key is not h2d_pageable_share}

CASES = [
    Fires(
        "copies from pinned memory take a fifth of the step",
        given(PINNED),
        code=("torch.cuda.Stream", "record_stream"),
        then="20%",
        state=State(phases={"h2d": 0.02, "forward": 0.08}),
        removed=(0.1, 0.16, 0.19),
        memory=50_000_000,
    ),
    Fires(
        "copies are part of the phase `other`",
        given(PINNED),
        state=State(phases={"forward": 0.07, "other": 0.03}),
        removed=(0.1, 0.16, 0.19),
    ),
    Fires("the source of the copies was not recorded, but the loader pins memory", given(UNKNOWN_SOURCE)),
    Fires("just above 3 %", given({**PINNED, h2d_fraction: 0.0301})),
    DoesNotFire("just below 3 %", given({**PINNED, h2d_fraction: 0.0299})),
    Fires("just under half of the copies are from pageable memory", given({**PINNED, h2d_pageable_share: 0.49})),
    DoesNotFire("half of the copies are from pageable memory: pin first", given({**PINNED, h2d_pageable_share: 0.5})),
    DoesNotFire(
        "the source of the copies was not recorded, and the loader does not pin memory",
        given({**UNKNOWN_SOURCE, loader: LoaderFact(id=1)}),
    ),
    DoesNotFire("batches are made on the GPU", given({**PINNED, loader: LoaderFact(id=1, batch_device="cuda:0")})),
    Fires("a trace, which shows no loader", given(TRACE), then="20%"),
    DoesNotFire("a trace with copies from pageable memory", given({**TRACE, h2d_pageable_share: 0.5})),
    DoesNotFire("a trace without steps", given({**TRACE, steady_step_count: 0})),
    NotMeasured("no GPU", given({key: value for key, value in PINNED.items() if key is not device})),
    NotMeasured(
        "copies were not timed", given({key: value for key, value in PINNED.items() if key is not h2d_fraction})
    ),
    NotMeasured("no loader was seen", given({key: value for key, value in PINNED.items() if key is not loader})),
]
