"""An uncompiled model spends much of the GPU time in small or memory-bound kernels.

`torch.compile` fuses chains of elementwise operations, normalizations and casts into one kernel. The data then
moves through memory once, and fewer kernels are launched.

Wrong when: the run is short (compilation takes a minute or more; the rest of the run should take at least twenty times
as long), shapes vary, the code has many graph breaks, or large matmuls take most of the time. Large matmuls gain
nothing: compiling made a step of an 8 B model on long sequences slower.

Source: PyTorch 2.0: getting started, measured on 163 models, https://pytorch.org/get-started/pytorch-2-x/
Source: Bekman, Machine Learning Engineering, https://github.com/stas00/ml-engineering
"""

from advisor.metrics import Metrics, Threshold, attention, copies, gpu, normalization, settings
from advisor.models.effects import divide_membound, in_turn, remove_launch_idle
from advisor.models.gpus import VOLTA
from advisor.rules._spelling import spelling
from advisor.rules.base import Advice, Area, Confidence, Evidence, Intervention, Rule, Safety, measure

RULE = Rule("Compile the model", Area.KERNELS, Confidence.EMPIRICAL)

MIN_MEMBOUND = Threshold(0.25, "Making a quarter of the time 1.2 to 2.5 times as fast saves 4 to 15 % (assumption).")

MIN_LAUNCH_BOUND = Threshold(
    0.15, "Share of the time that the GPU waits for launches; a compiled step launches fewer kernels (assumption)."
)

MAX_MATMUL = Threshold(
    0.8,
    "Above this share of large matmuls, nothing is left to fuse; such steps ran at 0.94 times the speed (measured).",
)

LEAST_LAUNCH_BOUND = Threshold(0.05, "Below this share of waiting, launches come in time.")

# Speed-up of memory-bound kernels, and share of the launch idle time that is saved.
FUSED = (1.2, 1.6, 2.5)
LAUNCHES = (0.3, 0.6, 0.8)


def when(m: Metrics) -> Evidence | None:
    """If the model is not compiled, and memory-bound kernels take at least 25 % of GPU time or the GPU waits for
    launches for at least 15 % of the time,
    """
    if m[gpu.is_compiled] or m[gpu.compute_capability] < VOLTA:
        return None
    launch_bound = measure(m, gpu.launch_bound_index, ">=", MIN_LAUNCH_BOUND)
    membound = measure(m, gpu.membound_share, ">=", MIN_MEMBOUND)
    if m[gpu.matmul_share] > m[MAX_MATMUL] and launch_bound.value < m[LEAST_LAUNCH_BOUND]:
        return None
    facts = tuple(fact for fact in (membound, launch_bound) if fact.holds)
    return Evidence(facts, "the model is not compiled") if facts else None


def then(m: Metrics, found: Evidence) -> Advice:
    """then compile the model."""
    other_share = m.get(attention.materialized_attention_share) or 0.0  # sdpa-flash covers this
    if membound := m[gpu.membound_share]:
        other_metrics = (copies.layout_copy_share, normalization.unfused_norm_share)  # covered by other rules
        other_share = min(1.0, other_share + sum(m.get(metric) or 0.0 for metric in other_metrics) / membound)
    return Advice(
        then="Compile the model: this fuses its many small or memory-bound kernels. Check the step time after "
        "some minutes; if the shapes vary, set dynamic=True.",
        changes=spelling(m).compile(),
        basis="Memory-bound kernels become 1.2, 1.6 or 2.5 times as fast; 30, 60 or 80 % of the time that the GPU "
        "waits for launches is saved. The compilation itself, about a minute at the start, is not counted.",
        effect=in_turn(divide_membound(FUSED, portion=1 - other_share), remove_launch_idle(LAUNCHES)),
        intervention=compile_intervention(m),
        risk="Low: the same operations, rounded in another order. Compare the loss over a few hundred steps.",
    )


def compile_intervention(m: Metrics, mode: str | None = None) -> Intervention | None:
    """Return the intervention that compiles the model from outside.

    None if the program already compiles a model, because it may do so in its own way.
    """
    flags = m.get(settings.flags)
    if flags is not None and flags.compile:
        return None
    return Intervention(name="compile", settings={"mode": mode}, safety=Safety.NUMERICS)
