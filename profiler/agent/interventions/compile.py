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

        def act(model: Any) -> None:
            model.compile(mode=self.mode)
            changed.append(model)

        def undo() -> None:
            for model in changed:
                model._compiled_call_impl = None

        agent.on_model.append(act)
        expect(agent, lambda: changed, "no model was found to compile")
        return undo
