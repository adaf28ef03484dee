"""CUDA graphs: no agent call may reach CUDA during a capture, and a replay may be a whole step.

An optimizer that runs inside a capture updates nothing; each replay of that graph does. A capture forbids most CUDA
calls in every thread (cudaStreamCaptureModeGlobal in CUDA's documentation of stream capture).
"""

from __future__ import annotations

import functools
from typing import Any

from ..dynamo import not_for_dynamo
from ..event_writer import clock
from ..look import ByIdentity
from ..observe import observe
from ..patching import patch
from ..ring import MARK_OPTIMIZER_END, OPTIMIZER
from ..session import Agent, ident
from ..tracebacks import not_counted, step_aside


@not_counted
def install(agent: Agent) -> None:
    """Observe the start and the end of a capture, and the replay."""
    cls = agent.torch.cuda.CUDAGraph
    plain = cls.replay
    updates = ByIdentity()
    """The last optimizer that ran while a graph was captured, by graph."""

    def begins(graph: Any, *_: Any, **__: Any) -> Any:
        agent.capturing.append(0)
        agent.uses_graphs = True
        return graph

    def begun(graph: Any, result: Any, failed: bool) -> None:
        if failed:
            agent.capturing.pop()

    def ended(graph: Any, result: Any, failed: bool) -> None:
        optimizer = agent.capturing.pop() if agent.capturing else 0
        agent.captured = True
        if optimizer and not failed:
            updates.put(graph, optimizer)

    @functools.wraps(plain)
    def run(graph: Any, *args: Any, **kwargs: Any) -> Any:
        optimizer = updates.get(graph)
        agent.uses_graphs = True  # it may have been captured before the agent was installed
        start = clock()
        try:
            result = plain(graph, *args, **kwargs)
        except BaseException as error:
            step_aside(error)
            raise
        if optimizer is not None:
            replayed(start, optimizer)
        return result

    def replayed(start: int, optimizer: int) -> None:
        try:
            if agent.mark is not None:
                agent.mark(MARK_OPTIMIZER_END)
            now = clock()
            tags = 0 if agent.own_steps else agent.end_step(now)
            agent.put((ident(), OPTIMIZER, start, now, optimizer, tags, 0, 1))
            agent.after_step(now)
        except Exception as error:
            agent.give_up("cuda_graphs", error)

    observe(agent, "cuda_graphs", "capture_begin", begins, cls, after=begun)
    observe(agent, "cuda_graphs", "capture_end", lambda graph: graph, cls, after=ended)
    not_for_dynamo(agent.torch, run)
    agent.uninstall.append(("cuda_graphs", patch("replay", plain, run, cls)))
    agent.uninstall.append(("cuda_graphs", agent.capturing.clear))
