"""Write changes for the framework that drives the training loop, one module per framework."""

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
    """Return the writer of changes for this run; plain PyTorch if no framework is known."""
    return FRAMEWORKS.get(m.get(driver) or "", OwnLoop)(m)
