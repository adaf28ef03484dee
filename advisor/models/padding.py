"""The cost of padding: linear layers compute every padded token, attention every pair of them."""

from dataclasses import dataclass

from advisor.models.effects import Triple


@dataclass(frozen=True, slots=True)
class Padding:
    """Padded over needed work of many sequences; both ratios are at least 1."""

    tokens: float
    """Sum of padded lengths over sum of needed ones."""
    pairs: float
    """Sum of squared padded lengths over sum of squared needed ones."""

    def speedup(self, attention: float) -> Triple:
        """Return the speed-up (low, expected, high) of computing only what is needed.

        `attention` is the share of the present time that grows with pairs. The ends are a step that depends only on
        tokens and one that depends only on pairs (Krell et al., "Efficient Sequence Packing without
        Cross-contamination", 2021, measure both kinds).

        Raises:
            ValueError: `attention` is outside 0 to 1.
        """
        if not 0 <= attention <= 1:
            raise ValueError(f"attention cannot take {attention} of the step")
        blended = 1 / ((1 - attention) / self.tokens + attention / self.pairs)
        return (min(self.tokens, self.pairs), blended, max(self.tokens, self.pairs))
