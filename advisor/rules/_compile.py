"""What rules about torch.compile share."""

from __future__ import annotations

from advisor.metrics.base import Metrics
from advisor.metrics.settings import model
from advisor.metrics.step import recompiles
from advisor.rules.base import Change
from advisor.rules.compile_recompiles import MIN_RECOMPILES

# Volta: the first that Triton makes kernels for.
CAPABILITY = (7, 0)


def varies(m: Metrics) -> bool:
    """Whether what is compiled already is compiled anew all the time: then another rule's advice comes first."""
    return (m.get(recompiles) or 0) >= MIN_RECOMPILES


def compile_change(m: Metrics, mode: str | None = None) -> Change:
    """The line that compiles the model."""
    fact = m.get(model)
    name = f"  # the {fact.name}" if fact and fact.name.isidentifier() else ""
    argument = f", mode={mode!r}" if mode else ""
    last = ", before it is wrapped for distributed training" if fact and fact.wrappers else ""
    code = f"import torch\n\n# after it was moved to the GPU{last}\nmodel = torch.compile(model{argument}){name}\n"
    return Change(language="python", code=code)
