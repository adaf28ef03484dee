"""What counts is how fast the trained model answers, and that is decided after training.

Distillation, pruning in structures, quantisation and low-rank layers make a model smaller and its answers faster. None
of them makes the training faster: distilling and quantisation-aware training cost time, and zeros without a structure
give dense kernels nothing. Of an existing model, LoRA trains a few adapters alone: that spares optimizer state, not
forward passes.

Wrong when: the training itself is what takes too long; or answers are slow for other reasons than the model's size:
measure the deployment first.
"""

from __future__ import annotations

from advisor.metrics.base import Metrics, Missing, Need
from advisor.metrics.goals import declared_goals
from advisor.metrics.memory import memory_pressure
from advisor.rules.base import Advice, Change, Confidence, Evidence, Fact, Rule, Severity, Source, Tier


def when(m: Metrics) -> Evidence | None:
    """If the declared goal is the latency of the trained model, and the training fits the memory,"""
    goals = m[declared_goals]
    if m.goals.goal is None:
        raise Missing(
            "What the run is for was not declared",
            "Declare it: profile-train report RUN --goal NAME.",
            Need.DECLARATION,
        )
    if m.goals.goal != "latency" or m.get(memory_pressure):
        return None
    return Evidence((Fact(declared_goals, len(goals), 1),), note="the goal is latency")


def then(m: Metrics, found: Evidence) -> Advice:
    """then make the trained model smaller, cheapest first, and judge it by its own latency and quality."""
    return Advice(
        then="After training, in this order: quantise the weights (post-training, 8 bits); if the quality suffers, "
        "train on with quantisation in the loop; distil into a smaller model; prune whole heads, channels or layers. "
        "Measure the 90th percentile of a single request, and the quality, after each. The training gets no faster.",
        changes=(
            Change(
                language="python",
                code="from torchao.quantization import Int8WeightOnlyConfig, quantize_\n\n"
                "quantize_(model.eval(), Int8WeightOnlyConfig())  # then torch.compile, and measure\n",
            ),
        ),
        basis="None in training: the gain is in inference.",
        risk="Medium: other outputs. Compare the quality on your own data.",
    )


RULE = Rule(
    title="Compress the trained model",
    tier=Tier.MODEL,
    when=when,
    then=then,
    confidence=Confidence.HEURISTIC,
    difficulty=3,
    cap=Severity.INFO,
    sources=(
        Source("torchao, quantization", "https://docs.pytorch.org/ao/stable/"),
        Source("Hinton et al., Distilling the Knowledge in a Neural Network, 2015", "https://arxiv.org/abs/1503.02531"),
        Source(
            "MLCommons: MLPerf Inference Rules",
            "https://github.com/mlcommons/inference_policies/blob/master/inference_rules.adoc",
        ),
    ),
)
