"""Optimizers of bitsandbytes that keep their moments in 8 bits, including the moments of embeddings."""

import importlib
from typing import Any

from ._modification import Modification
from ._updates import replace_optimizer

# Arguments that select how torch computes the same update; bitsandbytes has only its own way.
_WAYS = ("foreach", "fused", "capturable", "differentiable")


def apply(change: Modification, name: str) -> None:
    """Replace every optimizer made from now on.

    `name` is a class of torch.optim that bitsandbytes has, too: "Adam", "AdamW", "SGD", ... bitsandbytes itself rejects
    arguments of the program that it does not know.

    Raises:
        RuntimeError: bitsandbytes cannot be imported.
    """
    try:
        eight_bit = getattr(importlib.import_module("bitsandbytes").optim, f"{name}8bit")
    except ImportError as error:
        raise RuntimeError(f"bitsandbytes cannot be imported: {error}.") from error

    class EightBit(eight_bit):  # type: ignore[misc,valid-type]
        """The 8-bit optimizer, with the arguments of torch's optimizer."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            arguments = {key: value for key, value in kwargs.items() if key not in _WAYS}
            if arguments.get("maximize") is False:
                del arguments["maximize"]
            super().__init__(*args, **arguments)
            change.made = True

    replace_optimizer(change, name, EightBit)
    change.expect(f"No {name} was created.")
