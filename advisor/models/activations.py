"""The activations a transformer keeps for its backward pass, and the cost of not keeping them.

All sizes are in bytes. The formulas are from Korthikanti et al., "Reducing Activation Recomputation in Large
Transformer Models", MLSys 2023, with s tokens per sequence, b sequences, h hidden size, a heads. Other architectures
keep more or less (24 to 48 copies of the hidden state per layer); a measured size takes precedence over the formulas.
"""

from dataclasses import dataclass
from enum import Enum

# Bytes of one layer at 16 bits, divided by sbh: everything except attention scores; the input only; the scores (this
# one also divided by as/h).
WHOLE, INPUT, SCORES = 34, 2, 5

# Attention's core adds the share s/6h to a layer's forward matmuls, 24 bsh^2; selective recomputation repeats the core.
CORE_OF_PRODUCTS = 6

# Bytes per logit: one copy in 16 bits and one in fp32 for the loss (Korthikanti et al.).
LOGIT_BYTES = 6


class KeptParts(Enum):
    """The parts of a layer that are kept."""

    SCORES = "all, attention without flash"
    NO_SCORES = "all but the scores: flash attention, or selective recomputation"
    INPUT = "its input only: the whole layer is recomputed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """The shape of one transformer layer and its micro-batch."""

    sequence: int
    batch: int
    hidden: int
    heads: int

    def __post_init__(self) -> None:
        if min(self.sequence, self.batch, self.hidden, self.heads) < 1:
            raise ValueError(f"the sizes of a layer must be at least 1: {self}")

    @property
    def scores_ratio(self) -> float:
        """Return 5as/h, the bytes of attention scores divided by sbh; all other activations are 34."""
        return SCORES * self.heads * self.sequence / self.hidden

    def activations(self, keeps: KeptParts = KeptParts.SCORES, *, element: int = 2) -> float:
        """Return the bytes kept for the backward pass; `element` is the bytes per number."""
        scores = self.scores_ratio if keeps is KeptParts.SCORES else 0.0
        ratio = INPUT if keeps is KeptParts.INPUT else WHOLE + scores
        return ratio * self.sequence * self.batch * self.hidden * element / 2

    @property
    def selective_overhead(self) -> float:
        """Return the share of FLOP that selective recomputation adds, (1 + s/3h) / (1 + s/6h) - 1, as in the paper."""
        core_share = self.sequence / (CORE_OF_PRODUCTS * self.hidden)
        return (1 + 2 * core_share) / (1 + core_share) - 1


def logits(sequence: int, batch: int, vocabulary: int) -> float:
    """Return the bytes of a language model's logits: one copy in 16 bits, one in fp32 for the loss.

    Raises:
        ValueError: a size is below 1.
    """
    if min(sequence, batch, vocabulary) < 1:
        raise ValueError(f"sizes of logits must be at least 1: {batch} x {sequence} tokens, vocabulary {vocabulary}")
    return float(LOGIT_BYTES * sequence * batch * vocabulary)
