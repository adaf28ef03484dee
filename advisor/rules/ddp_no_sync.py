"""Gradients are accumulated, but they are reduced after every micro-batch.

DistributedDataParallel reduces gradients in every backward pass by default. With k micro-batches per update, only the
reduction after the last one is needed, because by then the gradients are summed. The other k - 1 reductions are wasted.

Wrong when: backward passes belong to updates of different optimizers (the rule does not fire then), or the model is
sharded: under FSDP, `no_sync` keeps whole gradients on every rank, which may not fit.

Source: PyTorch, DistributedDataParallel.no_sync, https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html
Source: PyTorch Performance Tuning Guide, https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html
"""

from advisor.metrics import Metrics, Threshold, communication, gpu, settings, step
from advisor.models.effects import PARTLY
from advisor.models.state import Effect
from advisor.rules._phases import remove_exposed
from advisor.rules._spelling import spelling
from advisor.rules.base import Advice, Area, Confidence, Evidence, Intervention, Rule, Safety, evidence, measure
from advisor.units import seconds, share

RULE = Rule("Reduce gradients once for each update", Area.DISTRIBUTED, Confidence.PHASE_REMOVAL)

MIN_MICRO_STEPS = Threshold(1.9, "About two micro-batches per update; the last update of an epoch may have fewer.")

MIN_REDUCTIONS = Threshold(
    1.5, "One reduction per update is needed; with no_sync, some epochs end with one more (assumption)."
)


def when(m: Metrics) -> Evidence | None:
    """If an update has several micro-batches and DistributedDataParallel reduces gradients more than once for it,"""
    if m[settings.world_size] < 2 or not m[settings.flags].ddp or m[settings.flags].fsdp:
        return None
    if m[step.micro_steps_per_step] < m[MIN_MICRO_STEPS] or len(m[settings.optimizers]) > 1:
        return None
    place = m[communication.ddp].place
    return evidence(
        measure(m, communication.reductions_per_step, ">=", MIN_REDUCTIONS),
        measure(m, step.micro_steps_per_step, ">=", MIN_MICRO_STEPS),
        measure(m, settings.world_size, ">=", 2),
        note=f"DistributedDataParallel created in {place.file}, line {place.line}" if place else "",
    )


def then(m: Metrics, found: Evidence) -> Advice:
    """then run the forward and backward passes of all micro-batches except the last under `no_sync`."""
    k = round(m[step.micro_steps_per_step])
    basis, effect = _gain(m)
    return Advice(
        then=f"Run forward and backward pass of the first {k - 1} of {k} micro-batches under model.no_sync(). With "
        "accelerate, that is `with accelerator.accumulate(model):`; Lightning's Trainer and transformers' Trainer do "
        "this for you if you set the number of batches to accumulate.",
        changes=spelling(m).accumulate(k),
        basis=basis,
        effect=effect,
        memory=0,
        intervention=Intervention(name="no_sync", settings={"passes": k}, safety=Safety.NUMERICS)
        if m[communication.reductions_per_step] > k - 0.5  # the program skips no reduction
        else None,
        risk="Low: the same sum of gradients, rounded in another order.",
    )


def _gain(m: Metrics) -> tuple[str, Effect | None]:
    """Return how the gain is predicted, and the effect.

    Without a GPU, hidden reductions cost step time as well: they are copied and summed on the cores that compute the
    backward pass. Measured with two gloo ranks in two runs: 43 and 70 % of the step were saved. Exposed and unneeded
    reductions were 31 and 41 % of it; with the hidden ones, 71 % in the second run.
    """
    exposed_seconds, total_seconds = m.get(communication.exposed_transfer), m.get(communication.comm_total)
    if exposed_seconds is None:
        return "The cost of reducing gradients was not measured: no gain is predicted.", None
    needless_share, shares = 1 - 1 / m[communication.reductions_per_step], PARTLY
    basis = f"{share(needless_share)} of the {seconds(exposed_seconds)} per step in exposed reductions is not needed: "
    if m.get(gpu.device) is None and total_seconds is not None and 0 < exposed_seconds < total_seconds:
        shares = (PARTLY[0], 1.0, total_seconds / exposed_seconds)
        basis += (
            f"50 or 100 % of this is saved. In the best case the same fraction of all {seconds(total_seconds)} is "
            "saved, because hidden reductions use cores that the backward pass needs."
        )
    else:
        basis += (
            "50, 80 or 100 % of this is saved. It may be less than all because ranks still wait for the slowest one "
            "once per update."
        )
    return basis, remove_exposed("communication", exposed_seconds * needless_share, shares, within=("backward",))
