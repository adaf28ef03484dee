"""What a rule wants, in the words of what drives the program's loop: one file a framework."""

from __future__ import annotations

from advisor.metrics.base import Metrics
from advisor.metrics.program import driver
from advisor.rules._spelling.accelerate import Accelerate
from advisor.rules._spelling.deepspeed import DeepSpeed
from advisor.rules._spelling.lightning import Fabric, Lightning
from advisor.rules._spelling.own_loop import OwnLoop
from advisor.rules._spelling.transformers import Transformers

FRAMEWORKS: dict[str, type[OwnLoop]] = {
    "transformers": Transformers,
    "lightning": Lightning,
    "fabric": Fabric,
    "accelerate": Accelerate,
    "deepspeed": DeepSpeed,
}


def spelling(m: Metrics) -> OwnLoop:
    """For this run; of a loop of the program's own where nothing else is known."""
    return FRAMEWORKS.get(m.get(driver) or "", OwnLoop)(m)
