"""Optimizers of bitsandbytes that keep their moments in 8 bits, those of embeddings included."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..session import Agent
from ._expected import expect
from ._updates import replace_optimizer

# Ways in which torch computes the same; bitsandbytes has one of its own.
_WAYS = ("foreach", "fused", "capturable", "differentiable")


@dataclass(frozen=True)
class Optimizer8bit:
    """The 8-bit change. `name` is a class of torch.optim that bitsandbytes has, too: "Adam", "AdamW", "SGD", ..."""

    name: str

    def apply(self, agent: Agent) -> Callable[[], None]:
        """Replace every optimizer made from now on.

        bitsandbytes itself rejects arguments of the program that it does not know.

        Raises:
            RuntimeError: bitsandbytes cannot be imported.
        """
        try:
            eight_bit = getattr(importlib.import_module("bitsandbytes").optim, f"{self.name}8bit")
        except ImportError as error:
            raise RuntimeError(f"bitsandbytes cannot be imported: {error}.") from error
        made: list[bool] = []

        class EightBit(eight_bit):  # type: ignore[misc,valid-type]
            """The 8-bit optimizer, with the arguments of torch's."""

            def __init__(self, *args: Any, **kwargs: Any) -> None:
                known = {key: value for key, value in kwargs.items() if key not in _WAYS}
                if known.get("maximize") is False:
                    del known["maximize"]
                super().__init__(*args, **known)
                made[:] = [True]

        expect(agent, lambda: made, f"No {self.name} was made.")
        return replace_optimizer(agent.torch, self.name, EightBit)
