"""Sizes of matmuls: whether they are aligned for tensor cores, and what a large vocabulary costs."""

from collections import defaultdict
from dataclasses import dataclass
from math import prod

from advisor.metrics.base import Metrics, known, metric
from advisor.metrics.operators import Product, products, shaped_operators
from advisor.models.activations import LOGIT_BYTES

MULTIPLES = {"fp16": 8, "bf16": 8, "fp8": 16}
"""Elements in the 16 bytes that tensor cores load at once.

Dimensions that are not a multiple of it use slower kernels (NVIDIA, Matrix Multiplication Background).
"""
LARGE = 2048
"""Shortest dimension for fp8: in smaller matmuls, conversion costs what the faster tensor cores save (torchao)."""
SHORTEST = 64
"""Shortest dimension to consider: padding a shorter one to a multiple of 8 may add more than a tenth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Misaligned:
    """A dimension that is misaligned for tensor cores, and the matmuls that have it."""

    length: int
    seconds: float
    """Seconds of all calls."""
    efficiency: float | None
    """Their FLOP/s divided by those of their peers; None if they have none."""


@metric(None)
def misaligned(m: Metrics) -> Misaligned | None:
    """The misaligned dimension whose matmuls take the most time; None if all are aligned.

    A misaligned matmul is compared with its peers: aligned matmuls of the same dtype that should not be faster, because
    they have no more operations, and no more operations per element moved.
    """
    matmuls = m[products]
    by_length: dict[int, list[Product]] = defaultdict(list)
    for product in matmuls:
        for length in set(_odd(product)):
            by_length[length].append(product)
    seconds = {
        length: sum(matmul.seconds for matmul in same_length)
        for length, same_length in by_length.items()
        if length >= SHORTEST
    }
    if not seconds:
        return None
    length = max(seconds, key=lambda length: (seconds[length], length))
    aligned = [product for product in matmuls if product.dtype in MULTIPLES and not _odd(product)]
    pairs = [(product, rate) for product in by_length[length] if (rate := _peer_rate(product, aligned))]
    compared_seconds = sum(product.seconds for product, _ in pairs)
    ideal_seconds = sum(product.flop * product.calls / rate for product, rate in pairs)
    return Misaligned(
        length=length,
        seconds=seconds[length],
        efficiency=ideal_seconds / compared_seconds if compared_seconds else None,
    )


@metric("count", "length that is misaligned for tensor cores")
def misaligned_length(m: Metrics) -> int:
    """The misaligned dimension of the matmuls that take the most time: not a multiple of 8 (fp8: 16)."""
    return known(m[misaligned], "Every matmul is aligned", "Nothing to do.").length


@metric("1", "share of the time in matmuls with a misaligned length")
def misaligned_matmul_share(m: Metrics) -> float:
    """Share of kernel time in 16-bit or fp8 matmuls that contain the misaligned dimension."""
    dimension = m[misaligned]
    return dimension.seconds / m[shaped_operators].seconds if dimension else 0.0


@metric("1", "speed of misaligned matmuls relative to their peers")
def misaligned_efficiency(m: Metrics) -> float:
    """FLOP/s of matmuls with the misaligned dimension, divided by the FLOP/s of comparable aligned matmuls.

    Aligned matmuls are comparable if they should not be faster.
    """
    dimension, remedy = m[misaligned], "Nothing automatic: time a padded size yourself."
    return known(dimension.efficiency if dimension else None, "There are no aligned matmuls to compare with", remedy)


@metric(None)
def large_bf16_matmuls(m: Metrics) -> tuple[Product, ...]:
    """Single bf16 matmuls in which every dimension is at least 2048."""
    return tuple(
        product
        for product in m[products]
        if product.dtype == "bf16" and product.batch == 1 and min(product.lengths) >= LARGE
    )


@metric("1", "share of the time in large BF16 matmuls")
def large_bf16_share(m: Metrics) -> float:
    """Share of kernel time in bf16 matmuls in which every dimension is at least 2048."""
    return sum(product.seconds for product in m[large_bf16_matmuls]) / m[shaped_operators].seconds


@dataclass(frozen=True, slots=True)
class Logits:
    """The size of the logits that the loss is computed from."""

    rows: int
    """Tokens of a micro-batch."""
    vocabulary: int


@metric(None)
def logits(m: Metrics) -> Logits:
    """The largest input of a cross-entropy. Its second dimension is the classes; later dimensions are positions."""
    shapes = [
        operator.inputs[0]
        for operator in m[shaped_operators].operators
        if operator.name == "aten::_log_softmax" and len(operator.inputs[0]) >= 2 and min(operator.inputs[0]) > 0
    ]
    remedy = "Nothing to do, unless the loss is compiled or fused."
    largest = known(max(shapes, key=prod, default=None), "No cross-entropy over classes was recorded", remedy)
    return Logits(prod(largest) // largest[1], largest[1])


@metric("count", "size of the vocabulary")
def vocabulary(m: Metrics) -> int:
    """Number of classes in the largest cross-entropy."""
    return m[logits].vocabulary


@metric("B", "memory of the logits")
def logits_bytes(m: Metrics) -> float:
    """Bytes of the loss's input, once in 16 bits and once in fp32.

    That is 6 bytes per element, a lower bound for the peak.
    """
    return float(LOGIT_BYTES * m[logits].rows * m[logits].vocabulary)


@metric("1", "share of the time in the matmul that computes the logits")
def head_share(m: Metrics) -> float:
    """Share of kernel time in matmuls over the vocabulary, forward and backward."""
    size = m[vocabulary]
    return sum(product.seconds for product in m[products] if size in product.lengths) / m[shaped_operators].seconds


def _odd(product: Product) -> list[int]:
    """Return the dimensions that are misaligned for the matmul's dtype; none for other dtypes."""
    multiple = MULTIPLES.get(product.dtype or "", 1)
    return [length for length in product.lengths if length % multiple]


def _peer_rate(product: Product, aligned: list[Product]) -> float | None:
    """Return the FLOP/s of the matmul's peers; None if it has none."""
    same_dtype = (peer for peer in aligned if peer.dtype == product.dtype)
    peers = [peer for peer in same_dtype if peer.flop <= product.flop and peer.intensity <= product.intensity]
    seconds = sum(peer.seconds for peer in peers)
    return sum(peer.flop * peer.calls for peer in peers) / seconds if seconds > 0 else None
