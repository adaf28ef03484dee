"""Compile the models with torch.compile."""

from __future__ import annotations

from typing import Any

from ..dynamo import compiled_graphs
from ._modification import Modification


def apply(change: Modification, mode: str | None = None) -> None:
    """Compile every model once it is known; the steps that compilation then takes are not measured.

    `mode` is the argument of torch.compile: None, "reduce-overhead", "max-autotune".
    """
    graphs: list[int] = []
    """Number of compiled graphs before each model was compiled."""

    def act(model: Any) -> None:
        graphs.append(compiled_graphs())
        model.compile(mode=mode)
        change.undoing.append(lambda: setattr(model, "_compiled_call_impl", None))

    change.agent.on_model.append(act)
    change.expect("torch.compile compiled no part of any model.", lambda: graphs and compiled_graphs() > graphs[0])
