"""Observe the calls of a function of torch or of the program.

Functions that a fast loop may call in every iteration (fetches, forward and backward passes, replays of graphs) have
their own wrappers, which take half the time.
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
    """Replace the function `name` of each owner with its `observer`, until the hook `source` is removed."""
    plain = getattr(owners[0], name)
    wrapper = in_place_of(plain, observer(agent, source, plain, before, after))
    agent.uninstall.append((source, patch(name, plain, wrapper, *owners, undone=in_script(plain, wrapper))))


@not_counted
def observer(
    agent: Any, source: str, plain: Any, before: Callable[..., Any], after: After = lambda *_: None
) -> Callable[..., Any]:
    """Return a function that passes for `plain` and calls it between `before` and `after`.

    `before` receives the arguments of a call. Unless it returns None, `after` receives its return value, the result of
    the call, and whether the call failed. Neither may call code of the program. If one raises, the hook `source` is
    removed and the error reported.
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
