"""The GPU runs dry because the host stopped to wait for it.

`.item()`, `.cpu()`, `print` of a tensor, `if` on a tensor and `nonzero` need a value that the GPU has yet to compute.
The host waits until its queue is empty, and only then begins to fill it again: the GPU idles meanwhile.

Wrong when: the value is needed to go on (a stopping criterion, a data-dependent shape), or the wait comes once every
many steps. To wait as such costs nothing while kernels are queued: only idle time counts here.
"""

from __future__ import annotations

from advisor.metrics.base import Metrics, Threshold
from advisor.metrics.gpu import device, gpu_busy_fraction
from advisor.metrics.step import step_time_mean, sync_fraction
from advisor.models.effects import up_to
from advisor.rules._exposed import remove_exposed
from advisor.rules.base import Advice, Change, Confidence, Evidence, Fact, Rule, Source, Tier
from advisor.units import share

MIN_SYNC = Threshold(
    0.03, "One `.item()` a step was measured within the noise on a CPU; of less than this nothing is left to see."
)

# Where synchronising is no phase of its own, the idle time may lie in any of these.
PHASES = ("forward", "backward", "optimizer", "other")

CODE = """\
import torch

torch.cuda.set_sync_debug_mode("warn")  # once, to find the lines; then remove it

total = torch.zeros((), device="cuda")
for step, (inputs, targets) in enumerate(loader):
    loss = training_step(inputs, targets)
    total += loss.detach()  # stays on the GPU: no loss.item() here
    if step % 50 == 49:
        print(f"{total.item() / 50:.4f}")  # one wait in fifty steps
        total.zero_()
"""


def when(m: Metrics) -> Evidence | None:
    """If the GPU idles for at least 3 % of the step because the host waited for it,"""
    m[device]
    waiting = m[sync_fraction]
    return None if waiting < m[MIN_SYNC] else Evidence((Fact(sync_fraction, waiting, m[MIN_SYNC]),))


def then(m: Metrics, found: Evidence) -> Advice:
    """then keep values on the GPU and read them every so many steps."""
    waiting, busy = m[sync_fraction], m.get(gpu_busy_fraction)
    idle = waiting if busy is None else min(waiting, 1 - busy)
    return Advice(
        then=f"Take .item(), .cpu() and prints of tensors out of the step: the GPU idles {share(waiting)} of it "
        "because the host waited. Add values up on the GPU and read them every 50 steps or so.",
        changes=(Change(language="python", code=CODE),),
        basis="Half, 0.8 or all of the waiting goes, as far as the GPU is idle at all.",
        effect=remove_exposed("sync", idle * m[step_time_mean], up_to(1.0), PHASES),
        memory=0,
        risk="None for the training; logged values come later, as means of several steps.",
    )


RULE = Rule(
    title="Do not wait for the GPU in every step",
    tier=Tier.STALLS,
    when=when,
    then=then,
    confidence=Confidence.PHASE_REMOVAL,
    difficulty=1,
    sources=(
        Source(
            "PyTorch Performance Tuning Guide: Avoid unnecessary CPU-GPU synchronization",
            "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html",
        ),
    ),
)
