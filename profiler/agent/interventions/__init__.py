"""What a trial changes in the program, from outside: one file a change, with its settings as the fields of a dataclass.

Each has `apply(agent)`, which makes the change and returns what takes it back. A change that cannot be made raises, and
the trial has failed: to measure the unchanged program in its place would be a lie. What a change finds out later than
that, it tells as a problem of the trial. Files whose names begin with an underscore are what changes have in common.
"""

from __future__ import annotations

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
    """Make the change of that name. Raises whatever keeps it from being made."""
    module = importlib.import_module(f"{__name__}.{name}")
    change = getattr(module, _CLASSES[name])(**settings)
    undo: Callable[[], None] = change.apply(agent)
    return undo
