"""The GPU waits while each batch is copied, although copies could overlap kernels.

A GPU has separate copy engines. If you start a copy from pinned memory one batch ahead, on another stream, it runs
while the GPU works on the previous batch. The copy also becomes shorter if you send the original integers (uint8
images, for example) and convert them on the GPU.

`verify` does not try this change: which tensors of a batch go to the GPU, and whether the program modifies them before,
is known only when the program copies them.

Wrong when: the copies come from pageable memory (pin it first, because such a copy blocks the host), the GPU cannot
hold a second batch, or a batch depends on the results of the previous one.

Source: PyTorch: A guide on good usage of non_blocking and pin_memory(), https://docs.pytorch.org/tutorials/intermediate/pinmem_nonblock.html
Source: PyTorch Performance Tuning Guide, https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html
"""

from advisor.metrics import Metrics, Threshold, gpu, input, settings, step
from advisor.rules._phases import remove_exposed
from advisor.rules.base import Advice, Area, Confidence, Evidence, Measurement, Rule, python
from advisor.units import share

RULE = Rule("Copy the next batch while kernels run", Area.STALLS, Confidence.PHASE_REMOVAL, difficulty=2)

MIN_H2D = Threshold(0.03, "Less exposed copying than this is within the noise of the step.")

MAX_PAGEABLE = Threshold(
    0.5, "Above this share, most of the copying time is for pageable memory; first apply data-pin-memory."
)

# Share of the exposed copies that is hidden by copying one batch ahead: all but the part longer than the step
# (assumption).
HIDDEN = (0.5, 0.8, 0.95)

CODE = """\
import torch


def one_ahead(loader, device="cuda"):
    \"\"\"Yield the loader's batches (tuples of tensors); each is copied while the GPU works on the previous one.\"\"\"
    copying, ready = torch.cuda.Stream(device), None
    for batch in loader:
        with torch.cuda.stream(copying):
            coming = [tensor.to(device, non_blocking=True) for tensor in batch]
        if ready is not None:
            yield ready
        current = torch.cuda.current_stream(device)
        current.wait_stream(copying)
        for tensor in coming:
            tensor.record_stream(current)
        ready = coming
    if ready is not None:
        yield ready


# in the loop: for inputs, targets in one_ahead(loader): ...
"""


def when(m: Metrics) -> Evidence | None:
    """If exposed copies to the GPU from pinned memory take at least 3 % of the step,"""
    copy_share, pageable_share = m[step.h2d_fraction], m.get(gpu.h2d_pageable_share)
    m[gpu.device]
    if m.get(settings.is_trace):  # a trace shows no loader, only steps and the memory that copies read
        pageable_share = m[gpu.h2d_pageable_share] if m[step.steady_step_count] else 1.0
    elif not (m[input.loader].batch_device or "cpu").startswith("cpu"):
        return None
    is_pinned = m[input.loader].pin_memory if pageable_share is None else pageable_share < m[MAX_PAGEABLE]
    if copy_share < m[MIN_H2D] or not is_pinned:
        return None
    pageable_facts = (
        () if pageable_share is None else (Measurement(gpu.h2d_pageable_share, pageable_share, m[MAX_PAGEABLE], "<"),)
    )
    return Evidence(
        (Measurement(step.h2d_fraction, copy_share, m[MIN_H2D]), *pageable_facts), "the copies come from pinned memory"
    )


def then(m: Metrics, found: Evidence) -> Advice:
    """then copy the next batch on a separate stream while the GPU works on this one."""
    loader = m.get(input.loader)
    return Advice(
        then=f"Copy each batch one step ahead, on a separate stream: {share(m[step.h2d_fraction])} of the step is "
        "exposed copying. Send images as uint8 and convert them on the GPU; create constant tensors there.",
        changes=(python(CODE, loader.place if loader else None),),
        basis="50, 80 or 95 % of the exposed copies are hidden behind kernels.",
        effect=remove_exposed("h2d", m[step.h2d_fraction] * m[step.step_time_mean], HIDDEN),
        memory=m.get(input.batch_bytes),
        risk="Low: GPU memory holds one more batch. Do not write to a batch on the host while it is being copied.",
        confidence=None if m.get(gpu.h2d_pageable_share) is not None else Confidence.EMPIRICAL,
    )
