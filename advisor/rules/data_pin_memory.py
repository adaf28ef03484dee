"""Batches are copied to the GPU from pageable memory.

The driver first copies pageable memory into a buffer of its own, in pieces, and the program waits for it. From pinned
memory the GPU fetches the batch itself, faster, and with non_blocking=True while the program goes on.

Wrong when: the tensors are pinned one by one in the training loop instead of by the loader, which costs more than it
saves; or the host is short of memory, for pinned pages cannot be swapped.
"""

from __future__ import annotations

from advisor.metrics.base import Metrics, Threshold
from advisor.metrics.gpu import device, h2d_pageable_share
from advisor.metrics.input import loader
from advisor.metrics.step import h2d_fraction, step_time_mean
from advisor.rules._exposed import remove_exposed
from advisor.rules._spelling import spelling
from advisor.rules._workers import loader_intervention
from advisor.rules.base import Advice, Confidence, Evidence, Fact, Rule, Source, Tier
from advisor.units import share

MIN_H2D = Threshold(0.03, "Half of that is expected to go: less than 1.5 % of the step drowns in its noise.")

MIN_PAGEABLE = Threshold(0.5, "From there on most of the copying time is of pageable memory.")

# Share of the exposed copies that goes. An A100 benchmark in Bekman's Machine Learning Engineering went from 0.646 to
# 0.459 s as a whole.
REMOVED = (0.3, 0.5, 0.7)


def when(m: Metrics) -> Evidence | None:
    """If copies to the GPU that nothing hides take at least 3 % of the step, and they come from pageable memory,"""
    copies = m[h2d_fraction]
    m[device]
    fact = m[loader]
    if copies < m[MIN_H2D] or fact.pin_memory or not (fact.batch_device or "cpu").startswith("cpu"):
        return None
    pageable = m.get(h2d_pageable_share)
    if pageable is not None and pageable < m[MIN_PAGEABLE]:
        return None
    seen = (Fact(h2d_pageable_share, pageable, m[MIN_PAGEABLE]),) if pageable is not None else ()
    return Evidence((Fact(h2d_fraction, copies, m[MIN_H2D]), *seen), "the loader has pin_memory=False")


def then(m: Metrics, found: Evidence) -> Advice:
    """then let the loader pin its batches, and copy them without waiting."""
    return Advice(
        then=f"Build the DataLoader with pin_memory=True and copy its batches with non_blocking=True: "
        f"{share(m[h2d_fraction])} of the step is exposed copying.",
        changes=(*spelling(m).loader(pin_memory=True), *spelling(m).copy_ahead()),
        basis="30, 50 or 70 % of the exposed copies go.",
        effect=remove_exposed("h2d", m[h2d_fraction] * m[step_time_mean], REMOVED),
        memory=0,
        intervention=loader_intervention(m[loader], pin_memory=True, non_blocking=True),
        risk="Low: do not write to a batch on the host while it is being copied; pinned memory cannot be swapped.",
        confidence=None if m.get(h2d_pageable_share) is not None else Confidence.EMPIRICAL,
    )


RULE = Rule(
    title="Pin the memory of batches",
    tier=Tier.STALLS,
    when=when,
    then=then,
    confidence=Confidence.PHASE_REMOVAL,
    difficulty=1,
    sources=(
        Source(
            "PyTorch: A guide on good usage of non_blocking and pin_memory()",
            "https://docs.pytorch.org/tutorials/intermediate/pinmem_nonblock.html",
        ),
        Source("Stas Bekman: Machine Learning Engineering", "https://github.com/stas00/ml-engineering"),
    ),
)
