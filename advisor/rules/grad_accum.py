"""The batch does not fit in memory, but it can be split.

Gradients are summed over several micro-batches before one update. Activations then need memory for only one
micro-batch, and the update still uses the whole batch. This is the cheapest way to make a batch fit: each micro-batch
launches its kernels again, but nothing is recomputed. Gradients do not shrink. They stay in memory between
micro-batches, while a step with a single batch holds no gradients at its activation peak.

Wrong when: the batch already fits (accumulation never makes a given batch faster), or the model uses batch
normalization, which then sees micro-batches. With padded sequences, averaging over micro-batches weights tokens
unequally. Instead, divide the summed loss by the number of tokens in the whole batch.

Source: transformers, Fix gradient accumulation (PR 34191), https://github.com/huggingface/transformers/pull/34191
Source: Bekman, Machine Learning Engineering, https://github.com/stas00/ml-engineering
"""

from advisor.metrics import Metrics, goals, gpu, input, memory, settings, step
from advisor.models.memory import Slope, pieces, slope_of_one
from advisor.models.state import Scenario, State
from advisor.rules._memory import pressure
from advisor.rules._spelling import spelling
from advisor.rules.base import Advice, Area, Confidence, Evidence, Intervention, Rule, Safety
from profiler.schema import LoaderFact

RULE = Rule(
    "Accumulate gradients over smaller batches",
    Area.MEMORY,
    Confidence.EMPIRICAL,
    supersedes=("ckpt-every-n", "accum-amortize", "offload-states"),
)


def when(m: Metrics) -> Evidence | None:
    """If memory is under pressure or the declared batch does not fit, and the batch has more than one sample,"""
    batch = input.batch_size(m)
    target = m[goals.target_per_rank] or 0
    if batch <= 1 or not (m[memory.memory_pressure] or target > batch * _accumulated(m)):
        return None
    slope = slope_of_one(batch, memory.used(m), m[memory.mem_activations])
    if _largest(m, _in_micro_batches(m)) < 1 or (target <= _largest(m, slope) and not m[memory.memory_pressure]):
        return None  # not even one sample fits, or all of them do
    note = f"batch size {batch}" + (f"; the target is {target}" if target else "")
    return Evidence(pressure(m), note)


def then(m: Metrics, found: Evidence) -> Advice:
    """then split the batch into micro-batches and accumulate their gradients."""
    batch, accumulated = input.batch_size(m), _accumulated(m)
    samples = max(m[goals.target_per_rank] or 0, round(batch * accumulated))
    # If the present size failed, it is too large, whatever the slope predicts.
    fitting_batch = _largest(m, _in_micro_batches(m))
    largest_batch = min(fitting_batch, batch - 1) if m[memory.memory_pressure] else fitting_batch
    k, micro = pieces(samples, largest_batch)
    factor = k * batch / samples

    def effect(state: State, scenario: Scenario) -> State:  # every micro-step has its own launch gaps
        return state.longer("forward", (factor - 1) * state.launch_idle)

    return Advice(
        then=f"Load {micro} samples at a time and update after every {k} micro-batches: "
        f"{k * micro * m[settings.data_parallel_size]} samples per update.",
        changes=spelling(m).accumulate(k, micro),
        basis="Time: with the same samples per update, a step takes longer, because every micro-batch has its own "
        "launch gaps. Memory: activations scale with the samples of a micro-batch; gradients stay in memory all the "
        "time.",
        effect=None if m.get(gpu.launch_bound_index) is None else effect,
        memory=round(_in_micro_batches(m).peak(micro) - memory.used(m)),
        intervention=in_pieces(m[input.loader], k) if samples == batch else None,
        risk="Low: the same sum of gradients, rounded in another order; batch normalization sees smaller batches.",
        fault=True,
    )


def in_pieces(fact: LoaderFact, k: int) -> Intervention | None:
    """Return the intervention that splits batches from outside.

    None if the loader's construction was not seen, or a framework creates the loader and may rely on its batches.
    """
    if fact.place is None or fact.place.via:
        return None
    arguments = {"file": fact.place.file, "line": fact.place.line, "pieces": k}
    return Intervention(name="micro_batch", settings=arguments, safety=Safety.TRAJECTORY)


def _accumulated(m: Metrics) -> float:
    return max(1.0, m.get(step.micro_steps_per_step) or 1.0)


def _largest(m: Metrics, slope: Slope) -> int:
    """Return how many samples fit, given the memory of one sample."""
    return slope.largest(m[gpu.device].memory_total) if slope.each > 0 else input.batch_size(m)


def _in_micro_batches(m: Metrics) -> Slope:
    """Return the memory peak as a function of micro-batch size, if an update has several micro-batches."""
    gradient_bytes = 0 if _accumulated(m) > 1 else m[memory.mem_grads]
    return slope_of_one(input.batch_size(m), memory.used(m), m[memory.mem_activations], gradient_bytes)
