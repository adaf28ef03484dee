"""The goal is the latency of the trained model, which depends on what you do after training.

Distillation, structured pruning, quantization and low-rank layers make a model smaller and inference faster. None of
them makes training faster: distillation and quantization-aware training add time, and dense kernels do not benefit from
unstructured zeros. LoRA trains only small adapters of an existing model; that saves optimizer state, not forward
passes.

Wrong when: the training itself takes too long, or inference is slow for reasons other than the model's size.
Measure the deployment first.

Source: torchao, quantization, https://docs.pytorch.org/ao/stable/
Source: Hinton et al., Distilling the Knowledge in a Neural Network, 2015, https://arxiv.org/abs/1503.02531
Source: MLCommons: MLPerf Inference Rules, https://github.com/mlcommons/inference_policies/blob/master/inference_rules.adoc
"""

from advisor.metrics import Metrics, Missing, Need, goals, memory
from advisor.rules.base import Advice, Area, Confidence, Evidence, Measurement, Rule, Severity, python

RULE = Rule("Compress the trained model", Area.MODEL, Confidence.HEURISTIC, difficulty=3, cap=Severity.INFO)


def when(m: Metrics) -> Evidence | None:
    """If the declared goal is the latency of the trained model, and memory is not under pressure in training,"""
    declared_goals = m[goals.declared_goals]
    if m.goals.goal is None:
        raise Missing(
            "The goal of the run was not declared",
            "Declare it: profile-train report RUN --goal NAME.",
            Need.DECLARATION,
        )
    if m.goals.goal != "latency" or m.get(memory.memory_pressure):
        return None
    return Evidence((Measurement(goals.declared_goals, len(declared_goals), 1),), note="the goal is latency")


def then(m: Metrics, found: Evidence) -> Advice:
    """then compress the trained model, cheapest method first, and measure its latency and quality."""
    return Advice(
        then="After training, in this order: quantize the weights (post-training, 8 bits); if the quality "
        "suffers, continue with quantization-aware training; distill into a smaller model; prune whole "
        "heads, channels or layers. After each, measure the 90th percentile of a single request, and the "
        "quality. Training does not get faster.",
        changes=(
            python(
                "from torchao.quantization import Int8WeightOnlyConfig, quantize_\n\n"
                "quantize_(model.eval(), Int8WeightOnlyConfig())  # then torch.compile, and measure\n"
            ),
        ),
        basis="Training gains nothing; inference gets faster.",
        risk="Medium: outputs change. Compare the quality on your own data.",
    )
