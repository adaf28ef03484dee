"""Gradients are accumulated, but they are reduced after every micro-batch.

DistributedDataParallel reduces gradients in every backward pass by default. With k micro-batches per update, only the
reduction after the last one is needed, because by then the gradients are summed. The other k - 1 reductions are wasted.

Wrong when: backward passes belong to updates of different optimizers (the rule does not fire then), or the model is
sharded: under FSDP, `no_sync` keeps whole gradients on every rank, which may not fit.

Source: PyTorch, DistributedDataParallel.no_sync, https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html
Source: PyTorch Performance Tuning Guide, https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html
"""

from advisor.metrics import Metrics, Threshold, communication, gpu, settings, step
from advisor.models.effects import PARTLY, Triple
from advisor.models.state import Effect
from advisor.rules._phases import remove_exposed
from advisor.rules._spelling import spelling
from advisor.rules.base import Advice, Area, Confidence, Evidence, Intervention, Rule, Safety, evidence, measure
from advisor.units import seconds

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
    return Advice(
        then=f"Run forward and backward pass of the first {k - 1} of {k} micro-batches under model.no_sync(). With "
        "accelerate, that is `with accelerator.accumulate(model):`; Lightning's Trainer and transformers' Trainer do "
        "this for you if you set the number of batches to accumulate.",
        changes=spelling(m).accumulate(k),
        basis=_basis(m),
        effect=_effect(m),
        memory=0,
        intervention=Intervention(name="no_sync", settings={"passes": k}, safety=Safety.NUMERICS)
        if m[communication.reductions_per_step] > k - 0.5  # the program itself leaves out none
        else None,
        risk="Low: the same sum of gradients, rounded in another order.",
    )


def _basis(m: Metrics) -> str:
    exposed = m.get(communication.exposed_transfer)
    if exposed is None:
        return "The cost of reducing gradients was not measured: no gain is predicted."
    needless = 1 - 1 / m[communication.reductions_per_step]
    if _hidden_too(m):
        return (
            f"Of {seconds(exposed)} per step in exposed reductions, {needless:.3g} are not needed: 50 or 100 % of "
            f"these are saved. In the best case the same fraction of all {seconds(m[communication.comm_total])} is "
            "saved, because hidden reductions use cores that the backward pass needs."
        )
    return (
        f"Of {seconds(exposed)} per step in exposed reductions, {needless:.3g} are not needed: 50, 80 or 100 % of "
        "these are saved. It may be less than all because ranks still wait for the slowest one once per update."
    )


def _effect(m: Metrics) -> Effect | None:
    exposed = m.get(communication.exposed_transfer)
    if exposed is None:
        return None
    needless = exposed * (1 - 1 / m[communication.reductions_per_step])
    shares: Triple = (PARTLY[0], 1.0, m[communication.comm_total] / exposed) if _hidden_too(m) else PARTLY
    return remove_exposed("communication", needless, shares, within=("backward",))


def _hidden_too(m: Metrics) -> bool:
    """Return whether hidden reductions cost step time as well.

    Without a GPU, reductions hidden behind the backward pass are copied and summed on the cores that compute it.
    Measured with two gloo ranks in two runs: 43 and 70 % of the step were saved. Exposed and unneeded reductions
    were 31 and 41 % of it; with the hidden ones, 71 % in the second run.
    """
    exposed, total = m.get(communication.exposed_transfer), m.get(communication.comm_total)
    return m.get(gpu.device) is None and exposed is not None and total is not None and 0 < exposed < total
