"""DistributedDataParallel copies every reduced gradient back from its buckets.

It reduces gradients in buckets. By default, each gradient also has its own memory, so after the reduction torch
launches one small copy for every parameter, when no computation is left to hide it. With
`gradient_as_bucket_view=True`, gradients are views of the buckets: this removes the copies, and memory holds one set of
gradients less.

Wrong when: the program calls `detach_()` on gradients, or keeps references to them between steps.

Source: PyTorch: DistributedDataParallel, gradient_as_bucket_view, https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html
"""

from advisor.metrics import Metrics, Threshold, communication, copies, step
from advisor.models.effects import COMPUTE, PARTLY, in_turn, remove_launch_idle, remove_seconds, up_to
from advisor.rules.base import Advice, Area, Confidence, Evidence, Rule, evidence, measure, python
from advisor.units import share

RULE = Rule("Let gradients be views of the buckets", Area.KERNELS, Confidence.PHASE_REMOVAL)

MIN_SHARE = Threshold(0.02, "A smaller share of the step is within its noise.")

CODE = """\
model = DistributedDataParallel(model, device_ids=[local_rank], gradient_as_bucket_view=True)
"""


def when(m: Metrics) -> Evidence | None:
    """If copies of gradients from DistributedDataParallel's buckets, and waiting for their launches, take at least 2 %
    of the step,
    """
    return evidence(measure(m, copies.gradient_copy_fraction, ">=", MIN_SHARE))


def then(m: Metrics, found: Evidence) -> Advice:
    """then let gradients be views of the buckets."""
    gradient_copies, ddp = m[copies.gradient_copies], m.get(communication.ddp)
    return Advice(
        then=f"Set gradient_as_bucket_view=True: in each step, {gradient_copies.calls:,.0f} gradients are copied back "
        f"from the buckets, which takes {share(m[copies.gradient_copy_fraction])} of the step.",
        changes=(python(CODE),),
        basis="50, 80 or 100 % of these copies, and of the time that the GPU waits for their launches, is saved.",
        effect=in_turn(
            remove_seconds(
                *COMPUTE, seconds=min(gradient_copies.seconds, sum(m[step.modeled_phases].values())), shares=PARTLY
            ),
            remove_launch_idle(up_to(gradient_copies.late)),
        ),
        memory=-ddp.gradient_bytes if ddp else None,
        risk="Low: the same numbers.",
    )
