"""Garbage collections that are long enough to matter."""

import gc
from typing import Any

from ..dynamo import not_for_dynamo
from ..event_writer import clock
from ..patching import taking_out
from ..ring import GC
from ..session import Agent, ident

# Shorter collections, mostly of the young generations, would fill the ring with events that nobody can act on.
SHORTEST_NS = 50_000


def install(agent: Agent) -> None:
    """Add a callback to `gc.callbacks`."""
    begin = [0]

    def on_collection(phase: str, info: dict[str, Any]) -> None:
        now = clock()
        if phase == "start":
            begin[0] = now
        elif now - begin[0] >= SHORTEST_NS:
            agent.put((ident(), GC, begin[0], now, 0, info.get("generation", 2)))

    not_for_dynamo(agent.torch, on_collection, callees=True)
    gc.callbacks.append(on_collection)
    agent.uninstall.append(("gc", taking_out(on_collection, gc.callbacks)))
