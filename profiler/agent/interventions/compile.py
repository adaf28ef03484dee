"""Compile the models with torch.compile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..session import Agent
from ._expected import expect


@dataclass(frozen=True)
class Compile:
    """The compile change; `mode` is that of torch.compile: None, "reduce-overhead", "max-autotune"."""

    mode: str | None = None

    def apply(self, agent: Agent) -> Callable[[], None]:
        """Compile every model once it is known; the steps that compilation then takes are not measured."""
        changed: list[Any] = []
        graphs: list[int] = []
        """Number of compiled graphs before each model was compiled."""

        def compiled() -> int:
            return agent.compiled() if agent.compiled else 0

        def act(model: Any) -> None:
            graphs.append(compiled())
            model.compile(mode=self.mode)
            changed.append(model)

        def undo() -> None:
            for model in changed:
                model._compiled_call_impl = None

        agent.on_model.append(act)
        expect(agent, lambda: graphs and compiled() > graphs[0], "Nothing of a model was compiled.")
        return undo
