"""How much of the batches is padding."""

from __future__ import annotations

from advisor.metrics.base import Metrics, Missing, metric
from advisor.metrics.input import loader
from advisor.metrics.settings import primary_rank
from profiler.schema import PaddingFact

FEWEST = 5
"""Batches that tell how long sequences are: 40 of them, if there are eight in a batch (assumption)."""


@metric(None)
def padding(m: Metrics) -> PaddingFact:
    """Sums over those batches of the main loader that were looked at: real tokens, and all with their padding."""
    number = m[loader].id
    fact = next((fact for fact in m[primary_rank].paddings if fact.id == number), None)
    if fact is None or fact.told_by is None:
        raise Missing(
            "No padding can be told from the batches",
            "Nothing, where there are no sequences; else let the loader return their mask, as `attention_mask`.",
        )
    if fact.batches < FEWEST or not fact.padded:
        raise Missing(f"Padding was looked for in fewer than {FEWEST} batches", "Record more steps.")
    return fact


@metric("1", "share of padding in the tokens")
def padding_waste(m: Metrics) -> float:
    """Share of the tokens of a batch that are padding."""
    return 1 - m[padding].real / m[padding].padded


@metric("1", "share of padding in the tokens beyond the longest of a batch")
def padding_beyond_longest(m: Metrics) -> float:
    """Share of the tokens of a batch that lie beyond its longest sequence: nobody would need to sort for these."""
    return 1 - m[padding].longest / m[padding].padded
