"""The changes that a trial makes to the program from outside: one module per change.

Each change is a dataclass with its settings as fields. Its `apply(agent)` makes the change and returns the function
that undoes it. A change that cannot be made raises, and the trial fails, because measuring the unchanged program
instead would give a false result. Problems that a change finds later are reported as problems of the trial. Modules
whose names begin with an underscore hold code that changes share.
"""

import importlib
from collections.abc import Callable
from typing import Any

from ..session import Agent

_CLASSES = {
    "loader": "Loader",
    "autocast": "Autocast",
    "fp16_autocast": "Fp16Autocast",
    "fused_optimizer": "FusedOptimizer",
    "flags": "Flags",
    "channels_last": "ChannelsLast",
    "compile": "Compile",
    "checkpointing": "Checkpointing",
    "selective_recompute": "SelectiveRecompute",
    "micro_batch": "MicroBatch",
    "zero_redundancy": "ZeroRedundancy",
    "fsdp2": "Fsdp2",
    "no_sync": "NoSync",
    "environment": "Environment",
    "ddp_hook": "DdpHook",
    "evaluation": "Evaluation",
    "optimizer_8bit": "Optimizer8bit",
    "logging": "Logging",
}


def apply(agent: Agent, name: str, settings: dict[str, Any]) -> Callable[[], None]:
    """Apply the change of that name; return the function that undoes it.

    Raises:
        Exception: anything that keeps the change from being made.
    """
    module = importlib.import_module(f"{__name__}.{name}")
    change = getattr(module, _CLASSES[name])(**settings)
    undo: Callable[[], None] = change.apply(agent)
    return undo
