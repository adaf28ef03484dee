"""Sizes of matrix products: whether tensor cores like them, and what a large vocabulary costs."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from math import prod

from advisor.metrics.base import Metrics, Missing, metric
from advisor.metrics.operators import Product, products, shaped_operators

MULTIPLES = {"fp16": 8, "bf16": 8, "fp8": 16}
"""Elements in the 16 bytes that tensor cores load at once: lengths that are no multiple take slower kernels (NVIDIA,
Matrix Multiplication Background)."""
LOGIT_BYTES = 6
"""Logits in 16 bits, and once more in fp32 for the loss (Korthikanti et al.)."""
SHORTEST = 64
"""To pad shorter ones to a multiple of 8 may add more than a tenth to them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Misaligned:
    """A length that is no multiple of what tensor cores load, and the products that have it."""

    length: int
    products: tuple[Product, ...]
    peers: tuple[float | None, ...]
    """FLOP/s of each one's peers; None where there are none."""

    @property
    def seconds(self) -> float:
        """Of all calls."""
        return sum(product.seconds for product in self.products)


@metric(None)
def misaligned(m: Metrics) -> Misaligned | None:
    """The length that most time in misaligned products goes with, if any is.

    Peers of a product are aligned ones of its dtype that should be no faster: of no more operations, and no more for
    each number moved.
    """
    found = m[products]
    by_length: dict[int, list[Product]] = defaultdict(list)
    for product in found:
        for length in set(_odd(product)):
            by_length[length].append(product)
    aligned = [product for product in found if product.dtype in MULTIPLES and not _odd(product)]
    lengths = [
        Misaligned(
            length=length, products=tuple(those), peers=tuple(_rate(_peers(product, aligned)) for product in those)
        )
        for length, those in by_length.items()
        if length >= SHORTEST
    ]
    return max(lengths, key=lambda each: (each.seconds, each.length), default=None)


@metric("count", "length that tensor cores do not like")
def misaligned_length(m: Metrics) -> int:
    """Of matrix products: no multiple of 8 numbers (fp8: 16), in those that take most time."""
    found = m[misaligned]
    if found is None:
        raise Missing("Every matrix product is aligned", "Nothing.")
    return found.length


@metric("1", "share of the time in products of a misaligned length")
def misaligned_matmul_share(m: Metrics) -> float:
    """Share of the time of kernels in 16-bit or fp8 products that have the misaligned length."""
    found = m[misaligned]
    return found.seconds / m[shaped_operators].seconds if found else 0.0


@metric("1", "speed of products of a misaligned length over that of their peers")
def misaligned_efficiency(m: Metrics) -> float:
    """FLOP/s of products that have the misaligned length over those of aligned products that should be no faster."""
    found = m[misaligned]
    pairs = [] if found is None else [(p, r) for p, r in zip(found.products, found.peers, strict=True) if r is not None]
    seconds = sum(product.seconds for product, _ in pairs)
    if not seconds:
        raise Missing("There are no aligned products to compare with", "Nothing: time a padded size by hand.")
    return sum(product.flop * product.calls / rate for product, rate in pairs) / seconds


@dataclass(frozen=True, slots=True)
class Logits:
    """The scores that the loss is taken of."""

    rows: int
    """Tokens of a micro-batch."""
    vocabulary: int


@metric(None)
def logits(m: Metrics) -> Logits:
    """The largest input of a cross-entropy: classes come second, places in a picture or a text after them."""
    shapes = [
        operator.inputs[0]
        for operator in m[shaped_operators].operators
        if operator.name == "aten::_log_softmax" and len(operator.inputs[0]) >= 2 and min(operator.inputs[0]) > 0
    ]
    if not shapes:
        raise Missing("No cross-entropy over classes was recorded", "Nothing, unless the loss is compiled or fused.")
    largest = max(shapes, key=prod)
    return Logits(prod(largest) // largest[1], largest[1])


@metric("count", "size of the vocabulary")
def vocabulary(m: Metrics) -> int:
    """Classes that the largest cross-entropy tells apart."""
    return m[logits].vocabulary


@metric("B", "memory of the logits")
def logits_bytes(m: Metrics) -> float:
    """The loss's input in 16 bits and once more in fp32, 6 bytes a number: at least so much at the peak."""
    return float(LOGIT_BYTES * m[logits].rows * m[logits].vocabulary)


@metric("1", "share of the time in the product that makes the logits")
def head_share(m: Metrics) -> float:
    """Share of the time of kernels in products over the vocabulary: of the forward and the backward pass."""
    size = m[vocabulary]
    return sum(p.seconds for p in m[products] if size in p.lengths) / m[shaped_operators].seconds


def _odd(product: Product) -> list[int]:
    """Lengths that are no multiple of what the product's dtype wants; those of other dtypes are all well."""
    multiple = MULTIPLES.get(product.dtype or "", 1)
    return [length for length in product.lengths if length % multiple]


def _peers(product: Product, aligned: list[Product]) -> list[Product]:
    return [
        peer
        for peer in aligned
        if peer.dtype == product.dtype and peer.flop <= product.flop and peer.intensity <= product.intensity
    ]


def _rate(peers: list[Product]) -> float | None:
    seconds = sum(peer.seconds for peer in peers)
    return sum(peer.flop * peer.calls for peer in peers) / seconds if seconds > 0 else None
