"""The shape of attention, and whether it runs in one kernel or as a softmax between two batched matmuls."""

import math
import re
from dataclasses import dataclass, replace
from typing import Literal

from advisor.metrics.base import Metrics, Missing, known, metric
from advisor.metrics.gpu import device
from advisor.metrics.operators import Product, computing_kernels, product_of, shaped_operators
from advisor.metrics.settings import primary_rank
from advisor.metrics.step import micro_steps_per_step
from advisor.models.gpus import AMPERE
from profiler.grouping import grouped
from profiler.schema import Operator

_SOFTMAX = "aten::_softmax"
_BATCHED = ("aten::bmm", "aten::baddbmm")
_DROPOUT = re.compile("native_dropout|bernoulli")

# Forward passes in one kernel, and the positions of heads, sequence and head size in the query's shape.
_FUSED = (
    (re.compile(r"scaled_dot_product\w*_attention(_for_cpu)?$|_cudnn_attention_forward$"), (1, 2, 3)),
    (re.compile(r"_flash_attention_forward$|_efficient_attention_forward$|_flash_attn_forward$"), (2, 1, 3)),
)

_BACKEND = re.compile(r"^aten::_(flash|efficient)_attention_(forward|backward)$")
HALF = ("fp16", "bf16")
_TRITON = ("attn_fwd", "bwd_kernel")
HOPPER = 9
LONG = 1024
"""Keys from which kernels differ by more than their launch time (FlashAttention-3 paper, figures from 512 on)."""

Stack = tuple[int, int, int]
"""Number of matrices, rows, columns."""

BYTES = {"fp64": 8, "fp32": 4, "fp16": 2, "bf16": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """One shape of attention, with all operators that belong to it."""

    fused: bool
    """Whether it runs in one or a few kernels, so that the scores are never in memory as a whole."""
    heads: int | None
    """Number of heads; None if they are merged with the batch dimension."""
    head: int
    """Size of a head."""
    keys: int
    seconds: float
    """Seconds of forward and backward; if fused, of forward only."""
    kept: float = 0.0
    """Bytes of scores that all forward passes of the windows keep for the backward pass; 0 if fused."""
    dropout: bool = False
    """Whether dropout is applied to the scores; known only if they are written to memory."""


@metric(None)
def attentions(m: Metrics) -> tuple[Attention, ...]:
    """All shapes of attention, sorted by time, longest first.

    Attention is unfused if a softmax reads the result of a batched matmul. All operators that read or write a tensor of
    that shape belong to it: scaling, masking and dropout.
    """
    operators = m[shaped_operators].operators
    shapes = [*_written(operators), *(attention for operator in operators if (attention := _fused(operator)))]
    return tuple(sorted(shapes, key=lambda attention: -attention.seconds))


@metric("1", "share of the time in unfused attention")
def materialized_attention_share(m: Metrics) -> float:
    """Share of kernel time (on a CPU: operator time) in attention whose scores are written to memory."""
    seconds = sum(attention.seconds for attention in m[attentions] if not attention.fused)
    if not seconds and _hidden(m):
        raise Missing("Attention inside compiled code cannot be identified", "Record once without torch.compile.")
    return seconds / m[shaped_operators].seconds


Name = Literal["efficient", "flash2", "triton"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """Attention in one kernel that another kernel of this GPU would compute faster."""

    name: Name
    """torch's memory-efficient kernel; FlashAttention-2 on Hopper; AMD's kernels in Triton."""
    masked: bool
    """Whether a mask or bias was given."""
    keys: int
    seconds: float
    """Seconds of forward and backward."""
    flop: float


@metric(None)
def slower_backend(m: Metrics) -> Backend | None:
    """The attention kernels, in 16 bits and on long sequences, for which this GPU has faster ones; None if there are
    none.
    """
    gpu = m[device]
    backends = []
    for operator in m[shaped_operators].operators:
        match = _BACKEND.search(operator.name)
        shapes = [shape for shape in operator.inputs[:4] if len(shape) == 4]
        if match is None or operator.dtype not in HALF or len(shapes) < 3 or not operator.flop:
            continue
        backward = match[2] == "backward"
        keys = operator.inputs[1 + backward][1]
        mask = operator.inputs[3 + backward : 4 + backward]
        name: Name = "triton" if gpu.is_amd else "efficient" if match[1] == "efficient" else "flash2"
        slow = {
            "triton": operator.kernel.startswith(_TRITON),
            "efficient": (gpu.capability or (0, 0)) >= AMPERE,
            "flash2": (gpu.capability or (0, 0))[0] == HOPPER and "sm90" not in operator.kernel,
        }[name]
        if slow and keys >= LONG:
            backends.append(Backend(name=name, masked=any(mask), keys=keys, seconds=operator.total, flop=operator.flop))
    if not backends:
        return None
    longest = max(backends, key=lambda backend: backend.seconds)
    peers = [backend for backend in backends if backend.name == longest.name]
    return replace(
        longest,
        masked=any(backend.masked for backend in peers),
        seconds=sum(backend.seconds for backend in peers),
        flop=sum(backend.flop for backend in peers),
    )


@metric("1", "share of the time in attention on a slower kernel")
def slower_backend_share(m: Metrics) -> float:
    """Share of kernel time in attention kernels, on long sequences, for which this GPU has faster ones."""
    backend = m[slower_backend]
    return backend.seconds / m[shaped_operators].seconds if backend else 0.0


@metric("1", "share of the time in attention")
def attention_share(m: Metrics) -> float:
    """Share of kernel time (on a CPU: operator time) in attention, fused or unfused."""
    kernels = computing_kernels(m[primary_rank], m[shaped_operators].device)
    fused = sum(kernel.total for kernel in kernels if kernel.kind == "attention")
    return m[materialized_attention_share] + fused / sum(kernel.total for kernel in kernels)


@metric(None)
def attention_is_flash(m: Metrics) -> bool:
    """Whether attention mostly runs in one kernel that never writes its scores.

    That kernel is flash attention, memory-efficient attention or cuDNN's.
    """
    return m[materialized_attention_share] < known(m[attention_share] or None, *_NONE) / 2


@metric("count", "tokens of a sequence")
def sequence_length(m: Metrics) -> int:
    """Keys per query, including masked ones, of the attention shape that takes the most time."""
    return _dearest(m).keys


@metric("count", "number of attention heads")
def attention_heads(m: Metrics) -> int:
    """Heads of the attention shape that takes the most time, on this rank."""
    remedy = "Read them from the model's configuration."
    return known(_dearest(m).heads, "Heads cannot be separated from the batch", remedy)


@metric("count", "size of the hidden state")
def hidden_size(m: Metrics) -> int:
    """Number of heads times the size of a head."""
    return m[attention_heads] * _dearest(m).head


@metric(None)
def scores_dropped_out(m: Metrics) -> bool:
    """Whether dropout is applied between the softmax and the second matmul."""
    return any(attention.dropout for attention in m[attentions] if not attention.fused)


@metric("B", "memory of the attention scores")
def scores_bytes(m: Metrics) -> float:
    """Bytes of scores kept for the backward pass of a micro-batch.

    These are the result of the softmax and, with dropout, also the dropout's result and mask.
    """
    return math.fsum(attention.kept for attention in m[attentions]) / (
        m[shaped_operators].steps * m[micro_steps_per_step]
    )


_NONE = ("No attention was recorded", "Nothing to do, unless the model's attention is compiled.")


def _dearest(m: Metrics) -> Attention:
    return known(next(iter(m[attentions]), None), *_NONE)


def _written(operators: tuple[Operator, ...]) -> list[Attention]:
    head_sizes = {_result(product): product.inner for operator in operators if (product := _batched(operator))}
    softmaxes = grouped(
        (operator for operator in operators if operator.name == _SOFTMAX), lambda operator: _stack(operator.inputs[0])
    )
    return [
        _attention(scores, group, head_sizes[scores], operators)
        for scores, group in softmaxes.items()
        if scores in head_sizes
    ]


def _attention(scores: Stack, softmaxes: list[Operator], head: int, operators: tuple[Operator, ...]) -> Attention:
    parts = [operator for operator in operators if _touches(operator, scores)]
    dropout = any(_DROPOUT.search(part.name) for part in parts)
    element = BYTES.get(softmaxes[0].dtype or "", 4)
    shape = softmaxes[0].inputs[0]
    return Attention(
        fused=False,
        heads=shape[1] if len(shape) == 4 else None,
        head=head,
        keys=scores[2],
        seconds=sum(part.total for part in parts),
        # The softmax's result and, with dropout, also the dropout's result and mask.
        kept=sum(softmax.calls for softmax in softmaxes)
        * math.prod(scores)
        * (2 * element + 1 if dropout else element),
        dropout=dropout,
    )


def _touches(operator: Operator, scores: Stack) -> bool:
    product = _batched(operator)
    makes = product is not None and _result(product) == scores
    return makes or any(_stack(shape) == scores for shape in operator.inputs)


def _batched(operator: Operator) -> Product | None:
    return product_of(operator) if operator.name in _BATCHED else None


def _result(product: Product) -> Stack:
    return product.batch, product.rows, product.columns


def _stack(shape: tuple[int, ...]) -> Stack | None:
    """Return a tensor of three or more dimensions as a stack of matrices; None for fewer dimensions."""
    return (math.prod(shape[:-2]), shape[-2], shape[-1]) if len(shape) >= 3 else None


def _fused(operator: Operator) -> Attention | None:
    axes = next((axes for pattern, axes in _FUSED if pattern.search(operator.name)), None)
    shapes = operator.inputs[:2]
    if axes is None or len(shapes) < 2 or any(len(shape) != 4 for shape in shapes):
        return None
    heads, sequence, size = axes
    query, key = shapes
    return Attention(fused=True, heads=query[heads], head=query[size], keys=key[sequence], seconds=operator.total)


def _hidden(m: Metrics) -> bool:
    """Return whether `torch.compile` fused a softmax into its own kernel next to batched matmuls."""
    batched = any(_batched(operator) for operator in m[shaped_operators].operators)
    return batched and any("triton" in kernel.name and "softmax" in kernel.name for kernel in m[primary_rank].kernels)
