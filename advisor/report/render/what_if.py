"""Build the controls for memory at other settings."""

from collections.abc import Iterable
from dataclasses import dataclass

from advisor.report.anatomy import WhatIf
from advisor.units import ordinal

PARTS = (
    ("params", "Parameters"),
    ("grads", "Gradients"),
    ("optim", "Optimizer state"),
    ("gathered", "Weights gathered or cast"),
    ("activations", "Activations and the rest of a step"),
    ("rest", "Cached, and outside PyTorch"),
)
"""Names in `advisor.models.anatomy.Parts`, and labels for readers."""

STAGES = (
    "0: nothing is sharded",
    "1: optimizer state is sharded",
    "2: gradients as well",
    "3: weights as well (FSDP)",
)

OPTIMIZERS = {
    "adamw": "AdamW",
    "adam": "Adam",
    "adamw8bit": "AdamW, moments in 8 bits",
    "lion": "Lion",
    "momentum": "SGD with momentum",
    "sgd": "SGD without momentum",
}


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a control."""

    value: str
    label: str
    chosen: bool = False


@dataclass(frozen=True, slots=True)
class Control:
    """A select control; `name` is the field of `advisor.models.anatomy.Setting`."""

    name: str
    label: str
    choices: tuple[Option, ...]


def controls(asked: WhatIf) -> tuple[Control, ...]:
    """Return the controls that offer a choice."""
    return tuple(control for control in _all(asked) if len(control.choices) > 1)


def _all(asked: WhatIf) -> Iterable[Control]:
    now, blocks = asked.anatomy.now, asked.anatomy.blocks
    ranks = tuple(Option(str(number), str(number), number == now.ranks) for number in asked.ranks)
    yield Control("ranks", "GPUs", ranks)
    stages = tuple(Option(str(number), STAGES[number], number == now.stage) for number in asked.stages)
    yield Control("stage", "ZeRO stage", stages)
    blocked = tuple(
        Option(str(number), f"each of the {blocks} blocks" if number == 1 else f"every {ordinal(number)} block")
        for number in asked.intervals
    )
    yield Control("every", "Activation checkpointing", (Option("", "none", chosen=True), *blocked))
    optimizers = tuple(Option(name, OPTIMIZERS[name], name == now.moments) for name in asked.optimizers)
    yield Control("moments", "Optimizer", optimizers)
    half = (Option("", "FP32, as recorded", chosen=True), Option("yes", "16-bit autocast"))
    yield Control("autocast", "Precision", half if asked.autocast else ())
