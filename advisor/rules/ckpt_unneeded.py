"""Activations are recomputed although there is enough memory to keep them.

Checkpointed blocks run their forward pass again during the backward pass to save memory. If the activations fit without
checkpointing, it saves nothing and costs up to a quarter of the step.

The times of the passes show how much is recomputed: a backward pass takes about twice as long as its forward pass, and
three times as long if everything is recomputed. The estimate of activation memory assumes that every block is
checkpointed, so it is an upper bound.

Wrong when: you plan a larger batch or model that needs the memory, inputs get longer later in the training, or
attention keeps its scores. A block then holds more than 17 times its input, which is what this rule assumes.

Source: Korthikanti et al., Reducing Activation Recomputation in Large Transformer Models, 2023, https://arxiv.org/abs/2205.05198
Source: PyTorch, torch.utils.checkpoint, https://docs.pytorch.org/docs/stable/checkpoint.html
"""

from advisor.metrics import Metrics, Missing, Threshold, memory, settings, step
from advisor.models.effects import remove
from advisor.models.memory import LAYER_OVER_BOUNDARY
from advisor.rules._spelling import spelling
from advisor.rules.base import Advice, Area, Confidence, Evidence, Rule, measure
from advisor.units import share

RULE = Rule("Keep activations instead of recomputing them", Area.MEMORY, Confidence.HEURISTIC)

SAFE = Threshold(
    0.88,
    "Largest share of GPU memory that the peak may reach without checkpointing. It is below the usual limit because "
    "this peak is estimated, not measured.",
)

# A backward pass computes two gradients for each matmul of the forward pass.
BACKWARD_OVER_FORWARD = 2.0

MIN_RECOMPUTED = Threshold(0.05, "A smaller share of the step is within the variation of the two passes (assumption).")

# Share of the recomputation time that is saved: random states are no longer kept, but more memory is written.
REMOVED = (0.7, 0.9, 1.0)


def when(m: Metrics) -> Evidence | None:
    """If blocks are checkpointed, no more memory is needed, recomputation takes at least 5 % of the step, and without
    it the peak would stay below 88 % of GPU memory,
    """
    if not m[settings.flags].checkpointing or m.goals.more_memory or m[memory.memory_pressure]:
        return None
    if _recomputed(m) < m[MIN_RECOMPUTED] or (filled_share := memory.filled(m, _grown(m))) > m[SAFE]:
        return None
    headroom = measure(m, memory.mem_headroom, ">", 1 - m[SAFE])
    measurements = (
        measure(m, metric) for metric in (memory.mem_activations, step.forward_fraction, step.backward_fraction)
    )
    return Evidence(
        (headroom, *measurements), f"without checkpointing, at most {filled_share:.0%} of GPU memory would be in use"
    )


def then(m: Metrics, found: Evidence) -> Advice:
    """then turn checkpointing off or, if that does not fit, checkpoint fewer blocks."""
    added_bytes = _grown(m)
    return Advice(
        then=f"Turn activation checkpointing off: about {share(_recomputed(m))} of the step recomputes activations "
        f"that would take {added_bytes / 1e9:.2f} GB more memory, and {share(m[memory.mem_headroom])} of GPU memory is "
        "free.",
        changes=spelling(m).no_checkpoints(),
        basis="Two assumptions: backward time beyond twice the forward time is recomputation (at most one forward "
        "pass), and a block keeps 17 times its input.",
        effect=remove("backward", shares=REMOVED, portion=_recomputed(m) / m[step.backward_fraction]),
        memory=round(added_bytes),
        risk="No effect on results: the same numbers are kept, not recomputed. If memory runs out, checkpoint "
        "every second block.",
    )


def _recomputed(m: Metrics) -> float:
    """Return the share of the step (0 to 1) spent on recomputation."""
    forward = m[step.forward_fraction]
    return min(forward, max(0.0, m[step.backward_fraction] - BACKWARD_OVER_FORWARD * forward))


def _grown(m: Metrics) -> float:
    """Return the bytes that activations would grow by if no block were checkpointed.

    It assumes that all blocks are checkpointed now: each keeps its input, and one block at a time keeps everything.
    """
    model, kept_bytes = m[settings.model], m[memory.mem_activations]
    if model.blocks < 2 or kept_bytes <= 0:
        raise Missing(
            "The memory without checkpointing is unknown: the model has no equal blocks",
            "Turn it off for some steps and record again.",
        )
    input_bytes = kept_bytes / (model.blocks + LAYER_OVER_BOUNDARY)
    return model.blocks * (LAYER_OVER_BOUNDARY * input_bytes) - kept_bytes
