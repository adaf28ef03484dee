"""Backward passes: `Tensor.backward`, `torch.autograd.backward` and `torch.autograd.grad`.

All of them call the engine by one private name, which is what the hook replaces. The public functions stay unchanged,
because TorchScript and Dynamo recognize them by identity.
"""

import functools
from typing import Any

from ..dynamo import FLAG, compiling, not_for_dynamo
from ..event_writer import clock
from ..patching import patch
from ..ring import BACKWARD, MARK_BACKWARD_END, MARK_BACKWARD_START
from ..session import Agent, ident
from ..tracebacks import not_counted, step_aside

ENGINE = "_engine_run_backward"


@not_counted
def install(agent: Agent) -> None:
    """Replace the name by which `torch.autograd` calls the engine."""
    autograd = agent.torch.autograd
    plain = getattr(autograd, ENGINE)
    is_traced, flag = compiling(agent.torch)
    dynamo = agent.dynamo
    threads = agent.in_backward
    mark = agent.mark
    put = agent.put

    @functools.wraps(plain)
    def run(*args: Any, **kwargs: Any) -> Any:
        if dynamo and (is_traced() or flag(FLAG)):
            return plain(*args, **kwargs)
        code = 0 if kwargs.get("accumulate_grad", True) is True else 1  # `autograd.grad` does not
        thread = ident()
        is_outermost = thread not in threads
        if is_outermost:
            threads.add(thread)
            if mark is not None:
                mark(MARK_BACKWARD_START)
        begin = clock()
        try:
            return plain(*args, **kwargs)
        except BaseException as error:
            step_aside(error)
            raise
        finally:
            end = clock()
            if is_outermost:
                threads.discard(thread)
                if mark is not None:
                    mark(MARK_BACKWARD_END)
            put((thread, BACKWARD, begin, end, 0, code))

    not_for_dynamo(agent.torch, run)
    agent.uninstall.append(("backward", patch(ENGINE, plain, run, autograd)))
