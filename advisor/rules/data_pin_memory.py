"""Batches are copied to the GPU from pageable memory.

The driver first copies pageable memory piece by piece into its own buffer, while the program waits. The GPU can read
pinned memory directly. That is faster, and with `non_blocking=True` the program continues meanwhile.

Wrong when: the training loop, not the loader, pins tensors one by one, which costs more than it saves; or the host is
short of memory (pinned pages cannot be swapped).

Source: PyTorch: A guide on good usage of non_blocking and pin_memory(), https://docs.pytorch.org/tutorials/intermediate/pinmem_nonblock.html
Source: Stas Bekman: Machine Learning Engineering, https://github.com/stas00/ml-engineering
"""

from advisor.metrics import Metrics, Threshold, gpu, input, settings, step
from advisor.rules._phases import remove_exposed
from advisor.rules._spelling import spelling
from advisor.rules._workers import loader_intervention
from advisor.rules.base import Advice, Area, Confidence, Evidence, Measurement, Rule, evidence, measure, python
from advisor.units import share

RULE = Rule("Pin the memory of batches", Area.STALLS, Confidence.PHASE_REMOVAL)

MIN_H2D = Threshold(0.03, "The expected saving is half of this share; less than 1.5 % of the step is within the noise.")

MIN_PAGEABLE = Threshold(0.5, "Above this share, most of the copying time is for pageable memory.")

# Share of the exposed copies that is saved. A whole A100 benchmark in Bekman's Machine Learning Engineering went from
# 0.646 to 0.459 s.
REMOVED = (0.3, 0.5, 0.7)


UNSEEN = (python("loader = DataLoader(dataset, ..., pin_memory=True)\n"),)
"""The change if the loader was not seen."""


def when(m: Metrics) -> Evidence | None:
    """If exposed copies to the GPU take at least 3 % of the step, and come from pageable memory or block the host (in a
    trace, which does not show the loader: if most of them come from pageable memory),
    """
    copy_share, blocking_share = m[step.h2d_fraction], m.get(step.blocking_copy_fraction) or 0.0
    m[gpu.device]
    if m.get(settings.is_trace):
        reason = evidence(
            measure(m, step.h2d_fraction, ">=", MIN_H2D), measure(m, gpu.h2d_pageable_share, ">=", MIN_PAGEABLE)
        )
        return reason if reason and m[step.steady_step_count] else None
    loader = m[input.loader]
    if copy_share + blocking_share < m[MIN_H2D] or not (loader.batch_device or "cpu").startswith("cpu"):
        return None
    if loader.pin_memory:
        return evidence(Measurement(step.blocking_copy_fraction, blocking_share, m[MIN_H2D]), note="its copies block")
    pageable_share = m.get(gpu.h2d_pageable_share)
    if pageable_share is not None and pageable_share < m[MIN_PAGEABLE]:
        return None
    facts = [
        Measurement(metric, value, m[MIN_H2D] if value >= m[MIN_H2D] else None)
        for metric, value in ((step.h2d_fraction, copy_share), (step.blocking_copy_fraction, blocking_share))
        if value
    ]
    if pageable_share is not None:
        facts.append(measure(m, gpu.h2d_pageable_share, ">=", MIN_PAGEABLE))
    return Evidence(tuple(facts), "the loader has pin_memory=False")


def then(m: Metrics, found: Evidence) -> Advice:
    """then let the loader pin its batches, and copy them without blocking."""
    loader = m.get(input.loader)
    is_pinned = loader is not None and loader.pin_memory
    exposed_share = (m.get(step.blocking_copy_fraction) or 0.0) + (0.0 if is_pinned else m[step.h2d_fraction])
    action = "Copy" if is_pinned else "Build the DataLoader with pin_memory=True and copy"
    return Advice(
        then=f"{action} its batches with non_blocking=True: for {share(exposed_share)} of the step the GPU waits for "
        "copies.",
        changes=(*(spelling(m).loader(pin_memory=True) if loader else UNSEEN), *spelling(m).copy_ahead()),
        basis="30, 50 or 70 % of the exposed copy time is saved.",
        effect=remove_exposed("h2d", exposed_share * m[step.step_time_mean], REMOVED, ("forward", "other")),
        memory=0,
        intervention=loader_intervention(loader, pin_memory=True, non_blocking=True) if loader else None,
        risk="Low: do not write to a batch on the host while it is being copied; pinned memory cannot be swapped.",
        confidence=None if m.get(gpu.h2d_pageable_share) is not None else Confidence.EMPIRICAL,
    )
