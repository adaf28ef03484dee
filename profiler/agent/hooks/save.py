"""The cost of checkpoints: calls of `torch.save` and of safetensors' `save_file`."""

import sys
from typing import Any

from ..event_writer import clock
from ..importing import when_imported
from ..observe import observe
from ..ring import SAVE
from ..session import Agent, ident

SAFETENSORS = "safetensors.torch"
"""The module with which Transformers and accelerate save models."""


def install(agent: Agent) -> None:
    """Observe `torch.save` and `safetensors.torch.save_file`.

    Calls are missed if the calling code imported the function by name before this hook was installed.
    """

    def hook(name: str, *owners: Any) -> None:
        observe(agent, "save", name, before, *owners, after=after)

    def before(*_: Any, **__: Any) -> tuple[int, int]:
        thread = ident()
        agent.in_save.add(thread)
        return thread, clock()

    def after(begun: tuple[int, int], *_: Any) -> None:
        thread, begin = begun
        agent.in_save.discard(thread)
        agent.put((thread, SAVE, begin, clock()))

    # In both modules: a process that unpickles it looks for it in the module that it names.
    hook("save", agent.torch, agent.torch.serialization)

    def imported() -> None:
        try:
            module = sys.modules[SAFETENSORS]
            if hasattr(module, "save_file"):  # it may be in the middle of its import
                hook("save_file", module)
        except Exception as error:
            agent.problem("save", error)

    when_imported(SAFETENSORS, imported)
