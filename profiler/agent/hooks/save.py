"""The cost of checkpoints: calls of `torch.save` and of safetensors' `save_file`."""

import functools
import sys
from collections.abc import Callable
from typing import Any

from ..dynamo import in_script, not_for_dynamo
from ..importing import when_imported
from ..outlet import clock
from ..patching import each_of, patch
from ..ring import SAVE
from ..session import Agent, ident
from ..tracebacks import not_counted, step_aside

SAFETENSORS = "safetensors.torch"
"""The module with which Transformers and accelerate save models."""


def install(agent: Agent) -> Callable[[], None]:
    """Patch `torch.save` and `safetensors.torch.save_file`.

    Code that imported one of them by name before the patch is not seen.
    """
    torch = agent.torch
    # In both places: a process that it is sent to looks for it in the module that it names.
    undo = [_hook(agent, "save", (torch, torch.serialization))]

    def imported() -> None:
        try:
            module = sys.modules[SAFETENSORS]
            if hasattr(module, "save_file"):  # it may be in the middle of its import
                undo.append(_hook(agent, "save_file", (module,)))
        except Exception as error:
            agent.problem("save", error)

    when_imported(SAFETENSORS, imported)

    return each_of(undo)


@not_counted
def _hook(agent: Agent, name: str, owners: tuple[Any, ...]) -> Callable[[], None]:
    plain = getattr(owners[0], name)

    @functools.wraps(plain)
    def save(*args: Any, **kwargs: Any) -> Any:
        thread = ident()
        agent.in_save.add(thread)
        begin = clock()
        try:
            return plain(*args, **kwargs)
        except BaseException as error:
            step_aside(error)
            raise
        finally:
            agent.in_save.discard(thread)
            agent.put((thread, SAVE, begin, clock()))

    not_for_dynamo(agent.torch, save)
    return patch(name, plain, save, *owners, undone=in_script(agent.torch, plain, save))
