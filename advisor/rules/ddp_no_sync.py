"""Gradients are accumulated, and travel after each micro-batch all the same.

DistributedDataParallel reduces gradients in every backward pass unless told not to. Of k micro-batches to an update
only the last one's reduction is needed: it carries the sum. The k - 1 others cost their time for nothing.

Wrong when: passes belong to several updates of several optimizers (the rule is silent then), or the model is sharded:
under FSDP, `no_sync` keeps whole gradients on every rank, and may not fit.
"""

from __future__ import annotations

from advisor.metrics.base import Metrics, Threshold
from advisor.metrics.communication import comm_total, ddp, exposed_transfer, reductions_per_step
from advisor.metrics.gpu import device
from advisor.metrics.settings import flags, optimizers, world_size
from advisor.metrics.step import micro_steps_per_step
from advisor.models.effects import PARTLY, Triple
from advisor.models.state import Effect
from advisor.rules._exposed import remove_exposed
from advisor.rules._spelling import spelling
from advisor.rules.base import Advice, Confidence, Evidence, Fact, Intervention, Rule, Safety, Source, Tier
from advisor.units import seconds

MIN_MICRO_STEPS = Threshold(1.9, "Two micro-batches to an update, but for a last one at an epoch's end.")

MIN_REDUCTIONS = Threshold(1.5, "One is needed; under no_sync some epochs end in one more (assumption).")

MIN_RANKS = 2


def when(m: Metrics) -> Evidence | None:
    """If DistributedDataParallel reduces gradients more than once for each update, which has several micro-batches,"""
    if m[world_size] < MIN_RANKS or not m[flags].ddp or m[flags].fsdp:
        return None
    if m[micro_steps_per_step] < m[MIN_MICRO_STEPS] or len(m[optimizers]) > 1:
        return None
    if m[reductions_per_step] < m[MIN_REDUCTIONS]:
        return None
    place = m[ddp].place
    return Evidence(
        (
            Fact(reductions_per_step, m[reductions_per_step], m[MIN_REDUCTIONS]),
            Fact(micro_steps_per_step, m[micro_steps_per_step], m[MIN_MICRO_STEPS]),
            Fact(world_size, m[world_size], MIN_RANKS),
        ),
        note=f"DistributedDataParallel made in {place.file}, line {place.line}" if place else "",
    )


def then(m: Metrics, found: Evidence) -> Advice:
    """then run forward and backward pass of all micro-batches but the last under `no_sync`."""
    k = round(m[micro_steps_per_step])
    return Advice(
        then=f"Run forward and backward pass of the first {k - 1} of {k} micro-batches under model.no_sync(). With "
        "accelerate, that is `with accelerator.accumulate(model):`; Lightning's Trainer and transformers' do it by "
        "themselves if they are told how many batches to accumulate.",
        changes=spelling(m).accumulate(k),
        basis=_basis(m),
        effect=_effect(m),
        memory=0,
        intervention=Intervention(name="no_sync", settings={"passes": k}, safety=Safety.NUMERICS)
        if m[reductions_per_step] > k - 0.5  # the program itself leaves out none
        else None,
        risk="Low: the same sum of gradients, rounded in another order.",
    )


def _basis(m: Metrics) -> str:
    exposed = m.get(exposed_transfer)
    if exposed is None:
        return "What reducing gradients costs was not measured: no gain is predicted."
    needless = 1 - 1 / m[reductions_per_step]
    if _hidden_too(m):
        return (
            f"Of {seconds(exposed)} a step in exposed reductions, {needless:.3g} are not needed: half or all of these "
            f"go, at best as much of all {seconds(m[comm_total])}: what the backward pass hides takes its cores."
        )
    return (
        f"Of {seconds(exposed)} a step in exposed reductions, {needless:.3g} are not needed: half, 0.8 or all of these "
        "go, for ranks that meet less often still wait for the slowest once."
    )


def _effect(m: Metrics) -> Effect | None:
    exposed = m.get(exposed_transfer)
    if exposed is None:
        return None
    needless = exposed * (1 - 1 / m[reductions_per_step])
    shares: Triple = (PARTLY[0], 1.0, m[comm_total] / exposed) if _hidden_too(m) else PARTLY
    return remove_exposed("communication", needless, shares, within=("backward",))


def _hidden_too(m: Metrics) -> bool:
    """Without a GPU, reductions behind the backward pass are copied and summed on the cores that compute it. Measured,
    two ranks of gloo: 43 and 70 % of the step went, 31 and 41 % were exposed and not needed, and 71 % with the hidden
    ones in the second run."""
    exposed, total = m.get(exposed_transfer), m.get(comm_total)
    return m.get(device) is None and exposed is not None and total is not None and 0 < exposed < total


RULE = Rule(
    title="Reduce gradients once for each update",
    tier=Tier.DISTRIBUTED,
    when=when,
    then=then,
    confidence=Confidence.PHASE_REMOVAL,
    difficulty=1,
    sources=(
        Source(
            "PyTorch, DistributedDataParallel.no_sync",
            "https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html",
        ),
        Source(
            "PyTorch Performance Tuning Guide", "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html"
        ),
    ),
)
