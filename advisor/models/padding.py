"""What padding costs: linear layers do work for every padded token, attention for every pair of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from advisor.models.effects import Triple


@dataclass(frozen=True, slots=True)
class Padding:
    """Tokens of many sequences, as padded now over as needed; both at least 1."""

    tokens: float
    """Sum of padded lengths over sum of needed ones."""
    pairs: float
    """The same of their squares."""

    @property
    def waste(self) -> float:
        """Share of the padded tokens that nobody needs."""
        return 1 - 1 / self.tokens

    def speedup(self, attention: float) -> Triple:
        """Of computing only what is needed, `attention` being the share of the time now that grows with pairs.

        The ends are a step all of tokens and one all of pairs (Krell et al., "Efficient Sequence Packing without
        Cross-contamination", 2021, measure both kinds).
        """
        if not 0 <= attention <= 1:
            raise ValueError(f"attention cannot take {attention} of the step")
        blended = 1 / ((1 - attention) / self.tokens + attention / self.pairs)
        return (min(self.tokens, self.pairs), blended, max(self.tokens, self.pairs))


def padding(lengths: Iterable[tuple[int, int]]) -> Padding:
    """From (needed, padded) lengths of sequences. ValueError if one needs more than it was padded to, or none does."""
    rows = list(lengths)
    needed, needed_pairs = sum(n for n, _ in rows), sum(n * n for n, _ in rows)
    if needed <= 0 or any(not 0 <= n <= p for n, p in rows):
        raise ValueError("padded lengths are at least the needed ones, and some token is needed")
    return Padding(sum(p for _, p in rows) / needed, sum(p * p for _, p in rows) / needed_pairs)
