"""The optimizer and the gradient reduction, which run once per update, take a large part of the step.

With k micro-batches per update, this work is done once for k times as many samples. Under DistributedDataParallel, run
the first k - 1 backward passes under `no_sync`; otherwise every backward pass still reduces gradients.

Each update then averages over k times as many samples, which changes the training. The rule therefore fires only if a
larger batch was declared (`--target-batch`), and its advice is never stronger than "suggest".

Wrong when: a larger micro-batch fits in memory, which costs less than accumulation; the optimizer itself is slow (a
fused optimizer does not change the training); or the batch is already so large that more samples per update no longer
help (gradient noise scale).

Source: Bekman, Machine Learning Engineering, https://github.com/stas00/ml-engineering
Source: McCandlish et al., An Empirical Model of Large-Batch Training, 2018, https://arxiv.org/abs/1812.06162
"""

from advisor.metrics import Metrics, Threshold, goals, input, settings, step
from advisor.models.effects import in_turn, remove, remove_seconds
from advisor.rules._spelling import spelling
from advisor.rules.base import Advice, Area, Confidence, Evidence, Rule, Severity, evidence, measure
from advisor.units import share

RULE = Rule(
    "Update once for several micro-batches", Area.DISTRIBUTED, Confidence.EMPIRICAL, difficulty=2, cap=Severity.SUGGEST
)

MIN_SHARE = Threshold(
    0.15, "Four micro-batches save three quarters of this share; below this limit, that is hardly a tenth of the step."
)


def when(m: Metrics) -> Evidence | None:
    """If the declared batch is at least twice the present one, and the optimizer and exposed communication take
    at least 15 % of the step,
    """
    target = m[goals.target_per_rank]
    if target is None or _times(m, target) < 2:
        return None
    update_share = m[step.optimizer_fraction] + _communication(m)
    if update_share < m[MIN_SHARE]:
        return None
    comm_metrics = (step.exposed_comm_fraction,) if m[settings.world_size] > 1 else ()
    return evidence(
        *(measure(m, metric) for metric in (step.optimizer_fraction, *comm_metrics, step.micro_steps_per_step)),
        note=f"together {share(update_share)} of the step; the target is {m.goals.target_batch} samples per update",
    )


def then(m: Metrics, found: Evidence) -> Advice:
    """then accumulate micro-batches up to the declared batch and update once for all of them."""
    factor = _times(m, m[goals.target_per_rank] or 0)
    k = round(factor * m[step.micro_steps_per_step])
    saved_share = 1 - 1 / factor
    shares, reduction_seconds = (saved_share, saved_share, saved_share), _communication(m) * m[step.step_time_mean]
    return Advice(
        then=f"Update once every {k} micro-batches of {input.batch_size(m)} samples: the optimizer and the "
        f"gradient reduction then run once for {factor} times as many samples.",
        changes=spelling(m).accumulate(k),
        basis=f"Per sample, 1 - 1/{factor} of the update's cost is saved; forward and backward passes cost the same.",
        effect=in_turn(
            remove("optimizer", shares=shares),
            # Communication that the step does not report separately is part of the backward pass, which waits for it.
            remove_seconds("communication", "backward", seconds=reduction_seconds, shares=shares),
        ),
        memory=0,
        risk=f"Medium: each update uses {factor} times as many samples, and there are {factor} times fewer updates. "
        "The learning rate grows with the batch (linearly for SGD, with its square root for Adam); compare "
        "the loss at equal numbers of samples.",
    )


def _times(m: Metrics, wanted: int) -> int:
    """Return how many of the present batches make up the wanted one."""
    return int(wanted / (input.batch_size(m) * max(1.0, m[step.micro_steps_per_step])))


def _communication(m: Metrics) -> float:
    return m[step.exposed_comm_fraction] if m[settings.world_size] > 1 else 0.0
