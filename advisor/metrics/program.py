"""How the program is written: what drives its loop, and the names its source gives to things."""

from __future__ import annotations

import keyword

from advisor.metrics.base import Metrics, Missing, metric
from advisor.metrics.settings import model, optimizer, primary_rank
from profiler.schema import CallFact


@metric(None)
def driver(m: Metrics) -> str:
    """What drives the training loop: "transformers", "lightning", "fabric", "accelerate", "deepspeed", or "torch" for a
    loop of the program's own.
    """
    return next(iter(m[optimizer].driven_by), "torch")


@metric(None)
def configuration(m: Metrics) -> CallFact:
    """The call in the program's source that configures what drives the loop, as TrainingArguments(...)."""
    for call in m[primary_rank].calls:
        if call.id == m[driver]:
            return call
    raise Missing("The call that configures the training was not found in the source", "Look for it by its name.")


@metric(None)
def model_variable(m: Metrics) -> str:
    """The name of the model in the program's source."""
    return _name(m[model].variable)


@metric(None)
def optimizer_variable(m: Metrics) -> str:
    """The name of the optimizer in the program's source."""
    return _name(m[optimizer].variable)


def _name(written: str | None) -> str:
    """A name, perhaps with dots: it stands in code that is to be copied."""
    parts = (written or "").split(".")
    if not all(part.isidentifier() and not keyword.iskeyword(part) for part in parts):
        raise Missing("Its name was not found in the source", "Put in its name.")
    return ".".join(parts)
