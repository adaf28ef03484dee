"""Helpers for the rules about `torch.compile`."""

from advisor.metrics import Metrics, settings
from advisor.rules.base import Intervention, Safety


def compile_intervention(m: Metrics, mode: str | None = None) -> Intervention | None:
    """Return the intervention that compiles the model from outside.

    None if the program already compiles a model, because it may do so in its own way.
    """
    known = m.get(settings.flags)
    if known is not None and known.compile:
        return None
    return Intervention(name="compile", settings={"mode": mode}, safety=Safety.NUMERICS)
