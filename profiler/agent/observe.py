"""Observe the calls of a function of torch's or of the program's.

What may be called at every turn of a fast loop (fetches, forward and backward passes, replays of graphs) has wrappers
of its own, which take half the time.
"""

import functools
from collections.abc import Callable
from typing import Any

from .dynamo import in_script, not_for_dynamo
from .patching import in_place_of, patch
from .tracebacks import not_counted, step_aside

After = Callable[[Any, Any, bool], None]


def observe(
    agent: Any, source: str, name: str, before: Callable[..., Any], *owners: Any, after: After = lambda *_: None
) -> None:
    """Replace a function by its `observer` where `owners` hold it under `name`, until the hook `source` is removed."""
    plain = getattr(owners[0], name)
    ours = in_place_of(plain, observer(agent, source, plain, before, after))
    agent.uninstall.append((source, patch(name, plain, ours, *owners, undone=in_script(plain, ours))))


@not_counted
def observer(
    agent: Any, source: str, plain: Any, before: Callable[..., Any], after: After = lambda *_: None
) -> Callable[..., Any]:
    """Return a function that passes for `plain`, and does the same between a look before and one after it.

    `before` gets the arguments of a call. Unless it returns None, `after` gets what it returned, the result, and
    whether the call failed. Neither may call code of the program. If one raises, the hook `source` is given up.
    """

    @functools.wraps(plain)
    def observed(*args: Any, **kwargs: Any) -> Any:
        try:
            state = before(*args, **kwargs)
        except Exception as error:
            agent.give_up(source, error)
            state = None
        try:
            result = plain(*args, **kwargs)
        except BaseException as error:
            if state is not None:
                end(state, None, True)
            step_aside(error)
            raise
        if state is not None:
            end(state, result, False)
        return result

    def end(state: Any, result: Any, failed: bool) -> None:
        try:
            after(state, result, failed)
        except Exception as error:
            agent.give_up(source, error)

    not_for_dynamo(agent.torch, observed)
    not_for_dynamo(agent.torch, before, end, after, callees=True)
    return observed
