"""How the program is written: the framework that drives its loop, and the names in its source."""

import keyword

from advisor.metrics.base import Metrics, Missing, known, metric
from advisor.metrics.settings import model, optimizer, primary_rank
from profiler.schema import CallFact, Place


@metric(None)
def driver(m: Metrics) -> str:
    """The framework that drives the training loop.

    One of "transformers", "lightning", "fabric", "accelerate" and "deepspeed", or "torch" for the program's own loop.
    """
    return next(iter(m[optimizer].driven_by), "torch")


@metric(None)
def configuration(m: Metrics) -> CallFact:
    """The call in the program's source that configures the framework, such as TrainingArguments(...)."""
    reason = "The call that configures the training was not found in the source"
    return known(_call(m, m[driver]), reason, "Search for it by name.")


@metric(None)
def save_place(m: Metrics) -> Place:
    """The only call of torch.save in the program's source."""
    reason = "No single call of torch.save was found in the source"
    return known(_call(m, "torch.save"), reason, "Search for the place where the program saves.").place


@metric(None)
def model_variable(m: Metrics) -> str:
    """The name of the model in the program's source."""
    return _name(m[model].variable)


@metric(None)
def optimizer_variable(m: Metrics) -> str:
    """The name of the optimizer in the program's source."""
    return _name(m[optimizer].variable)


def _call(m: Metrics, name: str) -> CallFact | None:
    return next((call for call in m[primary_rank].calls if call.id == name), None)


def _name(written: str | None) -> str:
    """Return a valid name, which may contain dots, because it appears in code to copy.

    Raises:
        Missing: the source has no valid name.
    """
    parts = (written or "").split(".")
    if not all(part.isidentifier() and not keyword.iskeyword(part) for part in parts):
        raise Missing("Its name was not found in the source", "Insert its name.")
    return ".".join(parts)
