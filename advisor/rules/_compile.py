"""What rules about torch.compile share."""

from __future__ import annotations

from advisor.metrics.base import Metrics
from advisor.metrics.settings import flags
from advisor.rules.base import Intervention, Safety

# Volta: the first that Triton makes kernels for.
CAPABILITY = (7, 0)


def compile_intervention(m: Metrics, mode: str | None = None) -> Intervention | None:
    """Compiling made from outside; None for a model that the program compiles itself, in a way of its own."""
    known = m.get(flags)
    if known is not None and known.compile:
        return None
    return Intervention(name="compile", settings={"mode": mode}, safety=Safety.NUMERICS)
