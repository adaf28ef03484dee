"""Keep torch.compile away from our wrappers."""

from __future__ import annotations

from typing import Any


def not_for_dynamo(torch: Any, function: Any, *, callees: bool = False) -> None:
    """Let Dynamo leave frames of this function alone, as it does torch's own: it would count one more graph break.

    `callees` too, for a function that calls nothing of the program's: what a hook of ours calls is as little for it.
    The C functions behind it need no `torch._dynamo`, whose import takes seconds.
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
