"""Ray Data: how long the loop waits for batches of `iter_batches` and `iter_torch_batches`, and fetches of blocks."""

import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any

from ..event_writer import clock
from ..patching import patch
from ..ring import FETCH
from ..session import Agent, ident
from ..tracebacks import not_counted, step_aside

MODULE = "ray.data._internal.block_batching.iter_batches"
UNKNOWN = -1  # the number of batches ready in Ray's threads
BLOCKS = "Ray Data: fetch blocks"  # a region: Ray's threads fetch in parallel with the steps


@not_counted
def install(agent: Agent) -> None:
    """Patch Ray Data's batch iterator, whose module must be imported."""
    batch_iterator = sys.modules[MODULE].BatchIterator
    plain = batch_iterator.__iter__
    plain_resolve: Any = getattr(batch_iterator, "_resolve_block_refs", None)  # only in some versions
    put = agent.put

    @functools.wraps(plain)
    def __iter__(self: Any) -> Any:
        return timed(plain(self), waited)

    def _resolve_block_refs(self: Any, *blocks: Any) -> Any:
        return timed(plain_resolve(self, *blocks), fetched)

    def waited(begin: int, *last: int) -> None:
        put((ident(), FETCH, begin, clock(), 0, UNKNOWN, *last))

    def fetched(begin: int, *last: int) -> None:
        if not last:
            agent.region(BLOCKS, begin, clock())

    def timed(items: Iterator[Any], record: Callable[..., None]) -> Iterator[Any]:
        while True:
            begin = clock()
            try:
                item = next(items)
            except StopIteration:
                record(begin, 1)
                return
            except BaseException as error:
                step_aside(error)
                raise
            record(begin)
            yield item

    agent.uninstall.append(("ray_data", patch("__iter__", plain, __iter__, batch_iterator)))
    if plain_resolve is not None:
        undo = patch("_resolve_block_refs", plain_resolve, _resolve_block_refs, batch_iterator)
        agent.uninstall.append(("ray_data", undo))
