"""The amount of padding in the batches."""

from advisor.metrics.base import Metrics, Missing, metric
from advisor.metrics.input import loader
from advisor.metrics.settings import primary_rank
from profiler.schema import PaddingFact

FEWEST = 5
"""Minimum number of batches to judge sequence lengths by (assumption).

With eight sequences per batch they hold 40 sequences.
"""


@metric(None)
def padding(m: Metrics) -> PaddingFact:
    """Number of tokens in the inspected batches of the main loader, with and without padding."""
    loader_id = m[loader].id
    fact = next((fact for fact in m[primary_rank].paddings if fact.id == loader_id), None)
    if fact is None or fact.told_by is None:
        raise Missing(
            "The batches do not show which tokens are padding",
            "Nothing to do, if there are no sequences; otherwise let the loader return their mask as `attention_mask`.",
        )
    if fact.batches < FEWEST or not fact.padded:
        raise Missing(f"Fewer than {FEWEST} batches were checked for padding", "Record more steps.")
    return fact


@metric("1", "share of padding tokens")
def padding_waste(m: Metrics) -> float:
    """Share of the tokens of a batch that are padding."""
    return 1 - m[padding].real / m[padding].padded


@metric("1", "share of padding beyond the longest sequence of a batch")
def padding_beyond_longest(m: Metrics) -> float:
    """Share of a batch's tokens that lie beyond its longest sequence.

    This padding can be removed without sorting sequences by length.
    """
    return 1 - m[padding].longest / m[padding].padded
