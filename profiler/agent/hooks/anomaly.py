"""Keep the agent's frames out of the stacks that anomaly detection prints.

Anomaly detection shows where the forward pass was when a gradient goes wrong.
"""

import functools
import sys
from typing import Any

from ..dynamo import not_for_dynamo
from ..patching import patch
from ..session import Agent
from ..tracebacks import OURS


def install(agent: Agent) -> None:
    """Wrap the function that autograd calls for each operator's stack while anomaly detection is on."""
    module: Any = sys.modules.get("torch.fx.traceback")
    plain = getattr(module, "format_stack", None)
    if plain is None:
        return

    prefixes = (f'File "{OURS}', f'File "<{OURS}')

    @functools.wraps(plain)
    def format_stack(*args: Any, **kwargs: Any) -> Any:
        return [entry for entry in plain(*args, **kwargs) if not entry.lstrip().startswith(prefixes)]

    not_for_dynamo(agent.torch, format_stack)
    agent.uninstall.append(("anomaly", patch("format_stack", plain, format_stack, module)))
