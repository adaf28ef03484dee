"""Many small matmuls run one by one, although one call could compute them together.

A loop over heads, experts or adapters launches one small matmul after the other. Each has too few blocks to fill the
GPU, and each needs a launch. `torch.bmm` computes matmuls of one size in a single kernel, and a grouped matmul does so
for experts with different numbers of tokens. Matmuls count as independent if nothing else is launched between them, and
the result of one does not have the size of the next one's input.

Wrong when: each matmul needs the result of the one before, as in a recurrent cell without activations.

Source: PyTorch: torch.bmm, https://docs.pytorch.org/docs/stable/generated/torch.bmm.html
Source: NVIDIA: Matrix Multiplication Background, wave quantization, https://docs.nvidia.com/deeplearning/performance/dl-performance-matrix-multiplication/index.html
"""

from advisor.metrics import Metrics, Threshold, batching, gpu
from advisor.models.effects import PARTLY, divide_matmul, in_turn, remove_launch_idle, up_to
from advisor.rules.base import Advice, Area, Confidence, Evidence, Measurement, Rule, python
from advisor.units import digits, share

RULE = Rule("Compute small matmuls together", Area.KERNELS, Confidence.ROOFLINE, difficulty=2)

MIN_SAVED = Threshold(0.05, "Share of the step that could be saved; a smaller gain is within the noise of most runs.")

BATCH = """\
# instead of [x @ w for x, w in zip(inputs, weights)], or of one Linear per head:
outputs = torch.bmm(torch.stack(inputs), torch.stack(weights))  # better: keep both stacked from the start
# if all weights have the same input: one Linear with the summed width
outputs = (x @ torch.cat(weights, dim=1)).split(width, dim=-1)
"""

GROUP = """\
# tokens sorted by expert: one kernel for all experts (torch 2.10 or newer; bf16 on an A100 or newer)
offsets = torch.cumsum(tokens_per_expert, dim=0, dtype=torch.int32)
hidden = torch.nn.functional.grouped_mm(sorted_tokens, weights, offs=offsets)  # weights: experts x inner x columns
# transformers: from_pretrained(..., experts_implementation="grouped_mm")
"""


def when(m: Metrics) -> Evidence | None:
    """If computing small matmuls together in one call would save at least 5 % of the step,"""
    batchable = m[batching.batchable]
    if batchable is None:
        return None
    saved_share = (
        batchable.saved * batchable.share * m[gpu.gpu_computing_fraction] + batchable.late * m[gpu.launch_bound_index]
    )
    if saved_share < m[MIN_SAVED]:
        return None
    return Evidence((Measurement(batching.batchable_share, batchable.share),), batchable.size)


def then(m: Metrics, found: Evidence) -> Advice:
    """then compute them in one batched or grouped matmul."""
    batchable = m[batching.batchable]
    assert batchable is not None, "the rule has fired"
    operator = "one grouped matmul for all experts" if batchable.experts else "torch.bmm"
    portion = min(1.0, batchable.share / m[gpu.matmul_share]) if m[gpu.matmul_share] else 0.0
    low, expected, high = (1 / (1 - min(0.99, fraction * batchable.saved)) for fraction in PARTLY)
    return Advice(
        then=f"Use {operator}: {digits(batchable.calls)} small matmuls per step run one by one, "
        f"{digits(batchable.together)} in a row, mostly {found.note}. They take {share(batchable.share)} of the GPU's "
        "time.",
        changes=(python(GROUP if batchable.experts else BATCH),),
        basis="One call takes its time at 70 % of the peak rate or 80 % of the bandwidth; 50, 80 or 100 % of the time "
        "beyond that is saved, and of the idle time before the launches.",
        effect=in_turn(
            divide_matmul((low, expected, high), portion=portion), remove_launch_idle(up_to(batchable.late))
        ),
        risk="Low: the same products, summed in another order. Stacking copies the operands unless you keep them "
        "stacked.",
    )
