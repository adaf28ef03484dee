"""Classify GPU kernels and operators by their names, with tables tried from top to bottom.

The names are those of cuBLAS, cuDNN, CUTLASS, ATen, Triton (as torch.compile names its kernels), FlashAttention, NCCL
and their ROCm counterparts. The tables were made from traces of V100, A100, H100, B200, MI250 and MI300.
"""

import re
from functools import lru_cache
from typing import NamedTuple

Table = tuple[tuple[str, re.Pattern[str]], ...]


def _table(**patterns: str) -> Table:
    """Return kinds and their patterns (verbose form) in the order they are tried.

    A suffix after "__" only distinguishes rows of the same kind.
    """
    return tuple((kind.split("__")[0], re.compile(pattern, re.VERBOSE)) for kind, pattern in patterns.items())


# torch.compile names a kernel after everything fused into it, so its type (poi, red, per, tem) is checked first.
_KERNELS = _table(
    loss__triton=r"triton_(red|per|poi).*(log_softmax|nll_loss|cross_entropy)",
    elementwise__triton=r"triton_poi",
    normalization__triton=r"triton_(red|per).*(norm|softmax|rsqrt|var_mean)",
    reduction__triton=r"triton_(red|per)",
    communication=r"nccl | rccl | all_?reduce | all_?gather | reduce_?scatter | all_?to_?all | nvshmem | deep_ep::",
    attention=r"flash | fmha | attention | attn | sdpa | sage_fwd",
    elementwise__depthwise=r"depthwise",  # a convolution by name, but memory-bound like elementwise work
    optimizer=r"multi_tensor | fused_?(adam|sgd|adagrad|lamb) | \bk(precondition)?optimizer",
    convolution=r"""conv(?!ert) | fprop | dgrad | wgrad | winograd | implicit_gemm | [sh](\d+)?cudnn | im2col | col2im
        | fft2d | igemm_(fwd|bwd|wrw) | cask_cudnn""",
    matmul=r"""(?<!fb)gemm | gemv | cutlass::(device_)?kernel | cutlass_ | xmma | nvjet | cijk_ | matmul | cublas
        | splitk | ^bmm_ | triton_(tem|mm|bmm) | (^|_)b?mm_kernel | wgmma | epilogue::impl""",
    loss=r"log_?softmax | nll_loss | cross_?entropy",
    normalization=r"norm | (^|::)bn_ | softmax | welford | rowwisemoments | gammabeta | computeinternalgradients",
    layout=r"nchwtonhwc | nhwctonchw | transpose",
    copy=r"""memcpy | memset | copy | catarray | permute | gather | scatter
        | index | indices | embedding""",
    reduction=r"""reduce | sum | mean | pool | loss | argm(ax|in) | top_?k | sort | scan | cum(sum|prod) | histogram
        | dot_kernel | (^|::)cub::""",
    elementwise=r"""elementwise | pointwise | dropout | distribution | fill | gelu | silu | relu | swiglu | activation
        | rotary | rope | upsample | quant | convert | cast | mask | where | arange | random | philox | foreach""",
)

# A template's arguments may name anything, so the function's own name is checked first.
_FUNCTION = re.compile(r"(?:void )?((?:\(anonymous namespace\)|[\w:])+)")
# ATen's softmax belongs to a loss if its epilogue is log-softmax or, for short rows, the flag after the length is set.
_LOG_SOFTMAX = re.compile(r"log_?softmax|softmax_warp_(forward|backward)<[^<>]*\d,\s*(true|1)")
_ATEN_COPY = re.compile(r"copy_kernel|index_(put|kernel|fill)|gather|scatter")

TENSOR_KINDS = frozenset({"matmul", "convolution", "attention"})
_PLAIN_CORES = re.compile(
    r"""simt | sgemm | dgemm | cgemm | scudnn | ffma | gemv | fft2d | splitk_?reduce | reducesplitk | reduce_wgrad
    | epilogue::impl | computeoffsets | im2col | col2im | gemmsn | scal_kernel""",
    re.VERBOSE,
)
_TENSOR_CORES = re.compile(
    r"""tensorop | tensor\d+x\d+x | [shi](884|1688|16816|16832|161616) | [whi]mma | wgmma | warpgroup | nvjet
    | flash_(fwd|bwd) | flashattn(fwd|bwd) | fmha | _mi\d+x\d+""",
    re.VERBOSE,
)

_DTYPES = _table(
    fp4=r"e2m1 | (nv|mx)?fp4",  # its scales are fp8
    fp8=r"e4m3 | e5m2 | fp8 | float8 | nvjet_(sm\d+_)?q | cijk_[a-z]+_[a-z]+_(f8|b8)",
    bf16=r"bf16 | bfloat16 | nvjet_(sm\d+_)?t | cijk_[a-z]+_[a-z]+_b",
    tf32=r"tf(loat)?32 | tensorop_s1688(gemm|fprop|dgrad|wgrad)(?!_f16) | nvjet_(sm\d+_)?s",
    fp16=r"f16 | fp16 | half | [sh]884 | h1688 | h16816 | hgemm | nvjet_(sm\d+_)?h | cijk_[a-z]+_[a-z]+_h",
    fp32=r"sgemm | simt | scudnn | f32f32 | cijk_[a-z]+_[a-z]+_s | \bfloat\b | _f32",
)

# Operators of a CPU trace. They count with their self time, so aten::linear counts only the time it spends itself.
_OPERATORS = _table(
    communication=r"^(c10d|nccl|gloo|_c10d_functional|mpi|ucc)[:_]",
    host=r"""^(autograd|torch|profiler):: | backward\d$ | ^detach_?$ | ^aten::(view|_unsafe_view|as_strided|reshape
        |_reshape_alias|t|transpose|permute|expand|select|slice|split|chunk|unbind|narrow|squeeze|unsqueeze|detach|alias
        |empty|empty_like|empty_strided|resize|set|to|result_type|lift_fresh|item|_local_scalar_dense|is_nonzero|unsafe_split|flatten|view_as|expand_as
        |resolve_conj|resolve_neg|contiguous|numpy_t|mt|diagonal)_?$""",
    optimizer=r"^aten::(_foreach | _fused_(adam|sgd|adagrad) | _amp)",
    attention=r"scaled_dot_product | attention",
    convolution=r"conv(?!ert)",
    matmul=r"""^(aten|mkldnn|quantized)::_?(mm|bmm|addmm|addmv|addr|mv|dot|vdot|ger|outer|matmul|linear|linear_backward
        |baddbmm|addbmm|einsum|scaled_mm|grouped_mm|linear_pointwise)_?$""",
    loss=r"log_softmax | nll_loss | cross_entropy",
    normalization=r"norm(?!al_?$) | softmax",
    copy=r"""^aten::(copy|_to_copy|clone|cat|stack|repeat|index|gather|scatter|embedding|masked_select|pin_memory|roll|pad
        |constant_pad|flip|tril|triu)""",
    reduction=r"""^aten::\w*(sum|mean|max|min|prod|any|all|var|std|loss|entropy|pool|topk|sort|argmax|count_nonzero|bincount
        |unique)""",
    elementwise=r"^aten::",
)


class KernelKind(NamedTuple):
    """The classification of a kernel by its name."""

    kind: str
    """Kind, as in schema.Kernel."""
    tensor_cores: bool | None
    """Whether it computes on tensor cores (matrix cores on AMD); None if the name does not show it."""
    dtype: str | None
    """Dtype of its inputs: fp32, tf32, fp16, bf16, fp8 or fp4; None if the name does not show it."""


@lru_cache(maxsize=4096)
def kernel_kind(name: str) -> KernelKind:
    """Classify the GPU kernel, copy or fill called `name`; the kind is "other" if no row matches."""
    lower = name.lower()
    kind = _kernel(lower)
    dtype = next((dtype for dtype, pattern in _DTYPES if pattern.search(lower)), None)
    if kind not in TENSOR_KINDS:
        return KernelKind(kind, False, dtype)
    if _PLAIN_CORES.search(lower):
        return KernelKind(kind, False, dtype)
    if dtype in ("fp4", "fp8", "tf32") or _TENSOR_CORES.search(lower):  # these exist on tensor cores only
        return KernelKind(kind, True, dtype)
    return KernelKind(kind, None, dtype)


@lru_cache(maxsize=4096)
def operator_kind(name: str) -> str:
    """Return the kind of the host operator called `name`; "other" if it is not one of torch's own."""
    return _look_up(_OPERATORS, name.lower())


def _kernel(lower: str) -> str:
    match = _FUNCTION.match(lower)
    function = match[1] if match else ""
    if "elementwise" in function and _ATEN_COPY.search(lower):
        return "copy"
    if "softmax" in function and _LOG_SOFTMAX.search(lower):
        return "loss"
    # CUTLASS names every kernel cutlass::Kernel<...>: only the argument shows the kind.
    kind = "other" if "cutlass" in function else _look_up(_KERNELS, function)
    return _look_up(_KERNELS, lower) if kind == "other" else kind


def _look_up(table: Table, name: str) -> str:
    return next((kind for kind, pattern in table if pattern.search(name)), "other")
