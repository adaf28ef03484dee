"""CUDA graphs: no agent call may reach CUDA during a capture, and a replay may be a whole step.

An optimizer that runs inside a capture updates nothing; each replay of that graph does. A capture forbids most CUDA
calls in every thread (cudaStreamCaptureModeGlobal in CUDA's documentation of stream capture).
"""

import functools
from collections.abc import Callable
from typing import Any

from ..dynamo import not_for_dynamo
from ..look import ByIdentity
from ..outlet import clock
from ..patching import each_of, patch
from ..ring import MARK_OPTIMIZER_END, OPTIMIZER
from ..session import Agent, ident
from ..tracebacks import step_aside


def install(agent: Agent) -> Callable[[], None]:
    """Wrap the start and the end of a capture, and the replay."""
    cls = agent.torch.cuda.CUDAGraph
    begin, end, replay = cls.capture_begin, cls.capture_end, cls.replay
    updates = ByIdentity()
    """The last optimizer that ran while a graph was captured, by graph."""

    @functools.wraps(begin)
    def capture_begin(graph: Any, *args: Any, **kwargs: Any) -> Any:
        agent.capturing.append(0)
        agent.uses_graphs = True
        try:
            return begin(graph, *args, **kwargs)
        except BaseException as error:
            agent.capturing.pop()
            step_aside(error)
            raise

    @functools.wraps(end)
    def capture_end(graph: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            result = end(graph, *args, **kwargs)
        except BaseException as error:
            step_aside(error)
            raise
        finally:
            optimizer = agent.capturing.pop() if agent.capturing else 0
            agent.captured = True
        if optimizer:
            updates.put(graph, optimizer)
        return result

    @functools.wraps(replay)
    def run(graph: Any, *args: Any, **kwargs: Any) -> Any:
        optimizer = updates.get(graph)
        agent.uses_graphs = True  # captured before we came, maybe
        start = clock()
        try:
            result = replay(graph, *args, **kwargs)
        except BaseException as error:
            step_aside(error)
            raise
        if optimizer is not None:
            ended(start, optimizer)
        return result

    def ended(start: int, optimizer: int) -> None:
        try:
            if agent.mark is not None:
                agent.mark(MARK_OPTIMIZER_END)
            now = clock()
            tags = 0 if agent.own_steps else agent.end_step(now)
            agent.put((ident(), OPTIMIZER, start, now, optimizer, tags, 0, 1))
            agent.after_step(now)
        except Exception as error:
            agent.give_up("cuda_graphs", error)

    for wrapper in (capture_begin, capture_end, run):
        not_for_dynamo(agent.torch, wrapper)
    undo = (
        patch("capture_begin", begin, capture_begin, cls),
        patch("capture_end", end, capture_end, cls),
        patch("replay", replay, run, cls),
        agent.capturing.clear,
    )
    return each_of(undo)
