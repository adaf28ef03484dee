"""What is done once an update - the optimizer, and reducing gradients - takes much of the step.

With k micro-batches to an update it is done once for k times as many samples. Under DistributedDataParallel the first
k - 1 backward passes then run under `no_sync`, or gradients travel k times all the same.

The update sees k times as many samples: that is another training, so the rule speaks only where a larger batch has been
declared wanted (`--target-batch`), and suggests at most.

Wrong when: the memory holds a larger micro-batch, which costs less than accumulating; the optimizer is merely slow (a
fused one is no change to the training); or the batch is already larger than gradient noise rewards.
"""

from __future__ import annotations

from advisor.metrics.base import Metrics, Missing, Threshold
from advisor.metrics.goals import target_per_rank
from advisor.metrics.input import loader
from advisor.metrics.settings import world_size
from advisor.metrics.step import exposed_comm_fraction, micro_steps_per_step, optimizer_fraction, step_time_mean
from advisor.models.accumulation import amortized_share
from advisor.models.effects import in_turn, remove, remove_seconds
from advisor.models.state import Effect
from advisor.rules._spelling import spelling
from advisor.rules.base import Advice, Confidence, Evidence, Fact, Rule, Severity, Source, Tier
from advisor.units import share

MIN_SHARE = Threshold(
    0.15, "With four micro-batches three quarters of it go: of less than this, hardly a tenth of the step."
)


def when(m: Metrics) -> Evidence | None:
    """If a larger batch is wanted, and the optimizer and exposed communication take at least 15 % of the step,"""
    wanted = m[target_per_rank]
    if wanted is None or _times(m, wanted) < 2:
        return None
    paid_once = m[optimizer_fraction] + _communication(m)
    if paid_once < m[MIN_SHARE]:
        return None
    facts = [Fact(optimizer_fraction, m[optimizer_fraction])]
    if m[world_size] > 1:
        facts.append(Fact(exposed_comm_fraction, m[exposed_comm_fraction]))
    facts.append(Fact(micro_steps_per_step, m[micro_steps_per_step]))
    return Evidence(
        tuple(facts),
        note=f"together {share(paid_once)} of the step; {m.goals.target_batch} samples an update are wanted",
    )


def then(m: Metrics, found: Evidence) -> Advice:
    """then update once for as many micro-batches as make up the batch that is wanted."""
    times = _times(m, m[target_per_rank] or 0)
    k = round(times * m[micro_steps_per_step])
    return Advice(
        then=f"Update once for {k} micro-batches of {m[loader].batch_size} samples: the optimizer and the reduction of "
        f"gradients are then paid once for {times} times as many samples.",
        changes=spelling(m).accumulate(k),
        basis=f"Of what is paid once an update, 1 - 1/{times} goes, a sample; forward and backward passes stay.",
        effect=_effect(m, times),
        memory=0,
        risk=f"Medium: updates of {times} times as many samples, and {times} times fewer of them. The learning rate "
        "grows with the batch (linear for SGD, its root for Adam); compare the loss by samples.",
    )


def _times(m: Metrics, wanted: int) -> int:
    """How many of the present updates make up the wanted one."""
    size = m[loader].batch_size
    if not size:
        raise Missing("The loader's batch size is unknown", "Let the DataLoader make the batches: batch_size=N.")
    return int(wanted / (size * max(1.0, m[micro_steps_per_step])))


def _communication(m: Metrics) -> float:
    return m[exposed_comm_fraction] if m[world_size] > 1 else 0.0


def _effect(m: Metrics, times: int) -> Effect:
    """What steps do not tell of communication lies in the passes that wait for it."""
    gone = amortized_share(times)
    shares = (gone, gone, gone)
    return in_turn(
        remove("optimizer", shares=shares),
        remove_seconds("communication", "backward", seconds=_communication(m) * m[step_time_mean], shares=shares),
    )


RULE = Rule(
    title="Update once for several micro-batches",
    tier=Tier.DISTRIBUTED,
    when=when,
    then=then,
    confidence=Confidence.EMPIRICAL,
    difficulty=2,
    cap=Severity.SUGGEST,
    sources=(
        Source("Bekman, Machine Learning Engineering", "https://github.com/stas00/ml-engineering"),
        Source(
            "McCandlish et al., An Empirical Model of Large-Batch Training, 2018", "https://arxiv.org/abs/1812.06162"
        ),
    ),
)
