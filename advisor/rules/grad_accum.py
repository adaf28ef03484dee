"""The batch does not fit at once, but may be split.

Gradients add up over micro-batches before one update, so activations need memory for a micro-batch only, and the update
sees the whole batch. It is the cheapest way to fit: launching is paid once more a micro-batch, nothing is recomputed.

Wrong when: the batch already fits - accumulation never makes a given batch faster - or the model uses batch
normalization, which sees micro-batches. With padded sequences, averaging micro-batches weighs tokens unequally: divide
the summed loss by all tokens of the batch instead.
"""

from __future__ import annotations

from advisor.metrics.base import Metrics, Missing
from advisor.metrics.goals import target_per_rank
from advisor.metrics.gpu import device, launch_bound_index
from advisor.metrics.input import loader
from advisor.metrics.memory import mem_activations, mem_headroom, memory_pressure
from advisor.metrics.settings import world_size
from advisor.metrics.step import micro_steps_per_step
from advisor.models.accumulation import pieces
from advisor.models.memory import slope_of_one
from advisor.models.state import Effect, Scenario, State
from advisor.rules._pressure import pressure
from advisor.rules._spelling import spelling
from advisor.rules.base import Advice, Confidence, Evidence, Intervention, Rule, Safety, Source, Tier
from profiler.schema import LoaderFact


def when(m: Metrics) -> Evidence | None:
    """If memory ran out or allocations were retried, or the batch that is wanted does not fit, and a batch of more than
    one sample can be split,
    """
    batch = _batch(m)
    wanted = m[target_per_rank] or 0
    if batch <= 1 or not (m[memory_pressure] or wanted > batch * _accumulated(m)):
        return None
    largest = _largest(m)
    if largest < 1 or (wanted <= largest and not m[memory_pressure]):
        return None  # not even one sample fits, or all of them do
    note = f"batch size {batch}" + (f"; {wanted} are wanted" if wanted else "")
    return Evidence(pressure(m), note)


def then(m: Metrics, found: Evidence) -> Advice:
    """then accumulate gradients over as many micro-batches as make up the batch."""
    batch, before = _batch(m), _accumulated(m)
    whole = max(m[target_per_rank] or 0, round(batch * before))
    # Where the present size has failed, it is too large whatever the slope says.
    largest = min(_largest(m), batch - 1) if m[memory_pressure] else _largest(m)
    k, micro = pieces(whole, largest)
    return Advice(
        then=f"Load {micro} samples at a time and update after every {k} micro-batches: "
        f"{k * micro * m[world_size]} samples an update.",
        changes=spelling(m).accumulate(k, micro),
        basis="At the same samples an update it costs time: launching leaves its gaps in every micro-batch.",
        effect=None if m.get(launch_bound_index) is None else _effect(k * batch / whole),
        memory=round(m[mem_activations] * (micro / batch - 1)),
        intervention=in_pieces(m[loader], k) if whole == batch else None,
        risk="Low: the same sum of gradients, rounded in another order; batch normalization sees smaller batches.",
        fault=True,
    )


def in_pieces(fact: LoaderFact, k: int) -> Intervention | None:
    """The same made from outside; None where a framework makes the loader, whose own batches it may count on."""
    if fact.place is None or fact.place.via:
        return None
    settings = {"file": fact.place.file, "line": fact.place.line, "pieces": k}
    return Intervention(name="micro_batch", settings=settings, safety=Safety.TRAJECTORY)


def _batch(m: Metrics) -> int:
    size = m[loader].batch_size
    if not size:
        raise Missing("The loader's batch size is unknown", "Let the DataLoader make the batches: batch_size=N.")
    return size


def _accumulated(m: Metrics) -> float:
    return max(1.0, m.get(micro_steps_per_step) or 1.0)


def _largest(m: Metrics) -> int:
    """Samples that fit at once, by the memory one takes."""
    capacity = m[device].memory_total
    slope = slope_of_one(_batch(m), (1 - m[mem_headroom]) * capacity, m[mem_activations])
    return slope.largest(capacity) if slope.each > 0 else _batch(m)


def _effect(times: float) -> Effect:
    """Launch gaps as often as there are more micro-steps than now."""

    def effect(state: State, scenario: Scenario) -> State:
        return state.longer("forward", (times - 1) * state.launch_idle)

    return effect


RULE = Rule(
    title="Accumulate gradients over smaller batches",
    tier=Tier.MEMORY,
    when=when,
    then=then,
    confidence=Confidence.EMPIRICAL,
    difficulty=1,
    sources=(
        Source(
            "transformers, Fix gradient accumulation (PR 34191)",
            "https://github.com/huggingface/transformers/pull/34191",
        ),
        Source("Bekman, Machine Learning Engineering", "https://github.com/stas00/ml-engineering"),
    ),
    supersedes=("ckpt-every-n", "accum-amortize", "offload-states"),
)
