"""Ray Data: how long the training loop waited for each batch of `iter_batches` and `iter_torch_batches`."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any

from ..outlet import clock
from ..ring import FETCH
from ..session import Agent, ident
from ..tracebacks import not_counted, step_aside

MODULE = "ray.data._internal.block_batching.iter_batches"
UNKNOWN = -1  # how many batches lie ready in Ray's threads


@not_counted
def install(agent: Agent) -> Callable[[], None]:
    """Patch the iterator of batches of Ray Data, whose module is imported."""
    batch_iterator = sys.modules[MODULE].BatchIterator
    plain = batch_iterator.__iter__
    put = agent.put

    @functools.wraps(plain)
    def __iter__(self: Any) -> Any:
        return timed(plain(self))

    def timed(batches: Iterator[Any]) -> Iterator[Any]:
        while True:
            begin = clock()
            try:
                batch = next(batches)
            except StopIteration:
                put((ident(), FETCH, begin, clock(), 0, UNKNOWN, 1))
                return
            except BaseException as error:
                step_aside(error)
                raise
            put((ident(), FETCH, begin, clock(), 0, UNKNOWN))
            yield batch

    batch_iterator.__iter__ = __iter__

    def undo() -> None:
        if batch_iterator.__iter__ is __iter__:
            batch_iterator.__iter__ = plain

    return undo
