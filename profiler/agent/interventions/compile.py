"""torch.compile for the models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..session import Agent
from ._expected import expect


@dataclass(frozen=True)
class Compile:
    """`mode` as of torch.compile: None, "reduce-overhead", "max-autotune"."""

    mode: str | None = None

    def apply(self, agent: Agent) -> Callable[[], None]:
        """Every model, once it is known; compiling takes the steps after that, which are left out."""
        changed: list[Any] = []
        graphs: list[int] = []
        """That there were before."""

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
