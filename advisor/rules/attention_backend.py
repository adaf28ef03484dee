"""Attention runs in one kernel, but not in the fastest one for this GPU.

`scaled_dot_product_attention` chooses by dtype, mask and head size. With a dense mask or bias, it cannot use flash
attention and uses the memory-efficient kernel. On Hopper, torch's flash attention is FlashAttention-2, written for
Ampere: cuDNN's kernel and FlashAttention-3 use Hopper's own instructions. On AMD, the default comes from Triton
(AOTriton); the kernels of Composable Kernel and AITER are faster on MI300.

Wrong when: the mask is a learned bias, the other kernel does not support the head size, or results must be bitwise
identical from run to run.

Source: Dao, FlashAttention-2, ICLR 2024, https://arxiv.org/abs/2307.08691
Source: Shah et al., FlashAttention-3, NeurIPS 2024, https://arxiv.org/abs/2407.08608
Source: PyTorch: sdpa_kernel, https://docs.pytorch.org/docs/stable/generated/torch.nn.attention.sdpa_kernel.html
"""

from advisor.metrics import Metrics, Threshold, attention, gpu, peaks, step
from advisor.models.effects import ANYWHERE, Triple, remove_seconds, shares_of
from advisor.rules.base import Advice, Area, Confidence, Evidence, Rule, evidence, measure, python
from advisor.units import digits, share

RULE = Rule("Choose the fastest attention kernel", Area.KERNELS, Confidence.EMPIRICAL, difficulty=2)

MIN_SHARE = Threshold(0.10, "A smaller share of the step cannot gain 5 %, even at twice the speed.")

MAX_EFFICIENCY = Threshold(
    0.5, "Above half of the peak rate, no other kernel is known to be a third faster (FlashAttention-3)."
)

# Speed-up of FlashAttention-2 over xFormers' kernel: 1.3 to 2.5 times; of FlashAttention-3 over 2 on an H100: 1.5 to 2
# times forward, 1.5 to 1.75 backward (both papers). For AMD, half of that (assumption). Low ends are lower because
# shapes differ.
SPEEDUPS: dict[str, Triple] = {"efficient": (1.1, 1.5, 2.2), "flash2": (1.1, 1.4, 1.8), "triton": (1.0, 1.25, 1.5)}

BEST = 0.75
"""Highest share of the peak known for an attention kernel (FlashAttention-3 on an H100)."""

UNMASKED = """\
# is_causal instead of an equivalent mask; padded batches: pack them, or let FlexAttention skip masked positions
out = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)

from torch.nn.attention.flex_attention import create_block_mask, flex_attention
blocks = create_block_mask(lambda b, h, q, k: q >= k, None, None, tokens, tokens)  # once; your mask as a function
out = torch.compile(flex_attention)(query, key, value, block_mask=blocks)
"""

CUDNN = """\
from torch.nn.attention import SDPBackend, sdpa_kernel

with sdpa_kernel([SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION], set_priority=True):  # torch 2.6 or newer
    out = model(inputs)
# or FlashAttention-3: from flash_attn_interface import flash_attn_func
"""

CK = """\
torch.backends.cuda.preferred_rocm_fa_library("ck")  # torch 2.8 or newer; or AITER's flash_attn_func
"""

WHAT = {
    "efficient": ("Let flash attention compute it", UNMASKED),
    "flash2": ("Let cuDNN or FlashAttention-3 compute attention: FlashAttention-2 was written for Ampere", CUDNN),
    "triton": ("Let Composable Kernel or AITER compute attention instead of Triton's kernel", CK),
}


def when(m: Metrics) -> Evidence | None:
    """If attention over at least 1,024 tokens takes at least 10 % of the step, its kernel is not the fastest one for
    this GPU, and it reaches less than half of the peak rate,
    """
    backend = m[attention.slower_backend]
    if backend is None or m[attention.slower_backend_share] * m[gpu.gpu_computing_fraction] < m[MIN_SHARE]:
        return None
    if _efficiency(m, backend) >= m[MAX_EFFICIENCY]:
        return None
    note = f"{backend.keys} tokens, {share(_efficiency(m, backend))} of the peak"
    return evidence(measure(m, attention.slower_backend_share, ">=", MIN_SHARE), note=note)


def then(m: Metrics, found: Evidence) -> Advice:
    """then choose the fastest kernel, or remove the mask that prevents it."""
    backend = m[attention.slower_backend]
    assert backend is not None, "the rule has fired"
    action, code = WHAT[backend.name]
    reason = ": the mask prevents it" if backend.name == "efficient" and backend.masked else ""
    speedup_limit = BEST / _efficiency(m, backend)
    low, expected, high = (min(speedup_limit, speedup) for speedup in SPEEDUPS[backend.name])
    attention_share = m[attention.slower_backend_share] * m[gpu.gpu_computing_fraction]
    return Advice(
        then=f"{action}{reason}. Attention takes {share(attention_share)} of the step, at {found.note}.",
        changes=(python(code),),
        basis=f"Attention becomes {digits(low)}, {digits(expected)} or {digits(high)} times as fast, at most "
        f"{share(BEST)} of the GPU's peak.",
        effect=remove_seconds(
            *ANYWHERE,
            seconds=attention_share * sum(m[step.modeled_phases].values()),
            shares=shares_of((low, expected, high)),
        ),
        risk="Low: the same result, summed in another order. Check that the same positions are still masked.",
    )


def _efficiency(m: Metrics, found: attention.Backend) -> float:
    """Return the share of the 16-bit peak that the attention attains."""
    return found.flop / found.seconds / m[peaks.peak_rates].half
