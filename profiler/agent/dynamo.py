"""Keep torch.compile and TorchScript from noticing the agent's wrappers."""

import sys
from collections.abc import Callable
from typing import Any

FLAG = "_is_compiling_flag"


def compiling(torch: Any) -> tuple[Callable[[], bool], Callable[[str], Any]]:
    """Return `is_traced` and `flag`; a hook evaluates `is_traced() or flag(FLAG)`.

    The result equals `torch.compiler.is_compiling()`, with one Python call instead of two: hooks evaluate it six times
    a step, because every optimizer imports `torch._dynamo`. While Dynamo traces, it treats `is_traced()` as True.
    """
    return torch.compiler.is_dynamo_compiling, vars(torch.compiler).get


def compiled_graphs() -> int:
    """Return the number of graphs that torch.compile has compiled; 0 while the program does not use it."""
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", None)
    return int(counters["stats"]["unique_graphs"]) if counters else 0


def not_for_dynamo(torch: Any, *functions: Any, callees: bool = False) -> None:
    """Make Dynamo skip frames of these functions, as it skips torch's own.

    Without this, each wrapper counts as one more graph break. Set `callees` for functions that call no code of the
    program: Dynamo then skips everything they call as well (from torch 2.7). The underlying C functions are used
    directly, because importing `torch._dynamo` takes seconds.
    """
    for function in functions:
        try:
            eval_frame = torch._C._dynamo.eval_frame
            if hasattr(eval_frame, "set_code_exec_strategy"):
                callee_action = eval_frame._FrameAction.SKIP if callees else eval_frame._FrameAction.DEFAULT
                strategy = eval_frame._FrameExecStrategy(eval_frame._FrameAction.SKIP, callee_action)
                eval_frame.set_code_exec_strategy(function.__code__, strategy)
            else:  # before torch 2.7
                eval_frame.skip_code(function.__code__)
        except AttributeError:  # another version of torch: one more graph break in a loop compiled as a whole
            continue


def in_script(plain: Any, wrapper: Any) -> Callable[[], None]:
    """Make TorchScript compile calls of `wrapper` as calls of `plain`; return the undo function.

    TorchScript finds torch's functions by identity, in a table that is usually built while torch is imported. If it is
    built later, it contains the wrapper anyway.
    """
    table = getattr(sys.modules.get("torch.jit._builtins"), "_builtin_table", None)
    if type(table) is not dict or (name := table.get(id(plain))) is None:
        return lambda: None
    table[id(wrapper)] = name
    return lambda: table.pop(id(wrapper), None)
