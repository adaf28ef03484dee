"""Keep the agent's frames out of tracebacks, whether an error is caught, logged or ends the program."""

import os
import sys
import types
from typing import Any

from .look import module_of, qualified_name_of
from .patching import patch

# Maximum characters of an error message.
MOST_WORDS = 1000


# An exception of the program may forbid setting its attributes, as a frozen dataclass does, or count such calls.
_held: Any = BaseException.__dict__
_traceback, _context, _cause = _held["__traceback__"], _held["__context__"], _held["__cause__"]


def step_aside(error: BaseException) -> None:
    """Remove the calling hook's frame from the traceback.

    A bare `raise` after it adds no frame. Before Python 3.11 it restores the removed one, which only `_straighten` then
    removes.
    """
    traceback = _traceback.__get__(error)
    if traceback is not None:
        _traceback.__set__(error, traceback.tb_next)


def not_counted(function: Any) -> Any:
    """Make `warnings` skip the frames of a function, and of functions defined in it, as it skips those of importlib.

    A `stacklevel` then refers to the same line as without the agent. Use it on functions that call the program, or
    torch on its behalf. `warnings` recognizes importlib's frames by two words in the file name. Coverage looks for no
    source file whose name is in angle brackets.
    """
    function.__code__ = _renamed(function.__code__)
    return function


def _renamed(code: types.CodeType) -> types.CodeType:
    constants = tuple(
        _renamed(constant) if isinstance(constant, types.CodeType) else constant for constant in code.co_consts
    )
    return code.replace(co_filename=f"<{code.co_filename} (importlib, _bootstrap)>", co_consts=constants)


def install(agent: Any) -> None:
    """Wrap `sys.excepthook`, which still prints uncaught exceptions as usual."""
    plain = sys.excepthook

    def excepthook(kind: Any, value: Any, traceback: Any) -> None:
        agent.failed = True
        try:
            _tell(agent, value)
            module = agent.torch.nn.Module
            _straighten(module._wrapped_call_impl.__code__, module._call_impl.__code__, value)
            traceback = _traceback.__get__(value)
        except Exception:  # then one traceback line of torch differs
            pass
        plain(kind, value, traceback)

    agent.uninstall.append(("tracebacks", patch("excepthook", plain, excepthook, sys)))


def _tell(agent: Any, error: BaseException) -> None:
    """Report the exception that ended the program.

    Its message is kept only if it is torch's message about memory or a worker: any other message may hold private data.
    """
    kind = type(error)
    message = None
    module, name = module_of(kind), qualified_name_of(kind)
    if module in ("builtins", "torch"):  # reading these messages runs no code of the program
        arguments = _held["args"].__get__(error)
        text = arguments[0] if arguments and type(arguments[0]) is str else ""
        if (
            name == "OutOfMemoryError"
            or text.startswith("DataLoader worker")
            or "DefaultCPUAllocator: can't allocate memory" in text
        ):
            message = _whole_sentences(text)
    agent.fail({"type": f"{module}.{name}".replace("builtins.", ""), "message": message})


def _whole_sentences(text: str) -> str:
    """Return the first MOST_WORDS characters, up to the end of a sentence."""
    if len(text) <= MOST_WORDS:
        return text
    prefix = text[:MOST_WORDS]
    return prefix[: max(prefix.rfind(". "), prefix.rfind(".\n")) + 1] or prefix


def _straighten(module_call: types.CodeType, module_run: types.CodeType, error: Any) -> None:
    """Remove the agent's frames and correct the line number of torch's call frame.

    Root modules are called through the attribute that `Module.compile` sets; without the agent, torch's call frame
    would be one line further down.
    """
    import dis

    offset = max(
        instruction.offset for instruction in dis.get_instructions(module_call) if instruction.opname.startswith("CALL")
    )
    line = [line for start, line in dis.findlinestarts(module_call) if start <= offset][-1]
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        entries = []
        entry = _traceback.__get__(error)
        while entry is not None:
            entries.append(entry)
            entry = entry.tb_next
        next_entry = None
        for entry in reversed(entries):
            frame = entry.tb_frame
            if is_ours(frame.f_code):  # before Python 3.11, `raise` brings it back
                continue
            # A module that the program has compiled continues elsewhere.
            if frame.f_code is module_call and next_entry is not None and next_entry.tb_frame.f_code is module_run:
                entry = types.TracebackType(next_entry, frame, offset, line or entry.tb_lineno)
            else:
                entry.tb_next = next_entry
            next_entry = entry
        _traceback.__set__(error, next_entry)
        cause = _cause.__get__(error)
        error = _context.__get__(error) if cause is None else cause


def is_ours(code: types.CodeType) -> bool:
    """Return whether this is code of the agent."""
    return code.co_filename.lstrip("<").startswith(OURS)


OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep
