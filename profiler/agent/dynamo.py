"""Keep torch.compile away from the agent's wrappers."""

from __future__ import annotations

from typing import Any


def not_for_dynamo(torch: Any, function: Any, *, callees: bool = False) -> None:
    """Make Dynamo skip frames of `function`, as it skips torch's own.

    Without this, each wrapper counts as one more graph break. Set `callees` for a function that calls no code of the
    program: Dynamo then skips everything it calls as well. The underlying C functions are used directly, because
    importing `torch._dynamo` takes seconds.
    """
    try:
        frames = torch._C._dynamo.eval_frame
        if hasattr(frames, "set_code_exec_strategy"):
            below = frames._FrameAction.SKIP if callees else frames._FrameAction.DEFAULT
            skip = frames._FrameExecStrategy(frames._FrameAction.SKIP, below)
            frames.set_code_exec_strategy(function.__code__, skip)
        else:  # before torch 2.7
            frames.skip_code(function.__code__)
    except AttributeError:  # another torch: one break more in a loop that is compiled as a whole
        return
