"""Describe how the program ended, in one plain sentence for the user."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from signal import Signals
from typing import Any

from profiler.schema import Outcome

MEANING = {
    Signals.SIGKILL: "out of memory (the machine's or the job's limit), preemption, or kill -9",
    Signals.SIGTERM: "a scheduler's time limit or preemption, or a kill command",
    Signals.SIGINT: "interrupted, for example by Ctrl-C",
    Signals.SIGQUIT: "interrupted, for example by Ctrl-\\",
    Signals.SIGHUP: "its terminal or connection was closed, which a program under nohup or tmux survives",
    Signals.SIGSEGV: "native code accessed invalid memory; python -X faulthandler shows where",
    Signals.SIGBUS: "native code accessed memory without backing, for example because /dev/shm is full",
    Signals.SIGABRT: "native code aborted; its last output says why",
    Signals.SIGILL: "native code was built for another processor",
    Signals.SIGFPE: "native code made an arithmetic error, such as a division by zero",
    Signals.SIGPIPE: "the reader of its output had exited",
    Signals.SIGXCPU: "its CPU time limit was reached",
    Signals.SIGXFSZ: "a file grew beyond the limit",
}
"""The usual cause of each signal."""

_WORKER = "DataLoader worker"
"""Start of torch's message about a worker that died."""
_OUT_OF_MEMORY = (
    "a step needed more memory than was free. A smaller batch with gradient accumulation, lower precision or "
    "activation checkpointing reduces memory use"
)


GRACE = 600.0
"""Seconds within which a program usually ends after a request; a later end has another cause."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request to the program to end, after which its exit status can be anything."""

    signal: int
    before: float
    """Seconds from the request to the program's end."""


def sentence(
    outcome: Outcome,
    status: int | None,
    signal: int | None,
    errors: Sequence[Mapping[str, Any]] = (),
    asked: Asked | None = None,
) -> str | None:
    """Return the sentence for the user; None if the program completed or is still running.

    `status` is the exit status as a shell shows it. `errors` are the bodies of the "error" facts: uncaught exceptions.
    """
    if outcome == "killed" and signal is not None:
        return f"The program was killed by {_named(signal)}."
    if outcome == "killed":
        return f"The program disappeared without an exit status: {MEANING[Signals.SIGKILL]}."
    if outcome != "failed":
        return None
    if errors:
        return _failed(errors)
    if status is not None and status - 128 in MEANING:  # a launcher's child, as a shell reports it
        return f"The program ended with exit status {status}, which stands for {_named(status - 128)}."
    if status is None:
        return "The program failed."
    if asked is not None and asked.before < GRACE:
        return f"The program ended with exit status {status}, after {_named(asked.signal)}."
    return f"The program ended with exit status {status}."


def code(outcome: Outcome | None, errors: Sequence[Mapping[str, Any]] = ()) -> str:
    """Return "killed", "exit-status", "worker" for a worker that died, or the type of the error that nothing caught."""
    if outcome == "killed" or not errors:
        return "killed" if outcome == "killed" else "exit-status"
    kind, message = _first(errors)
    return "worker" if message.startswith(_WORKER) else kind


def _named(number: int) -> str:
    try:
        signal = Signals(number)
    except ValueError:  # a real-time signal
        return f"signal {number}"
    meaning = MEANING.get(signal)
    return f"signal {number} ({signal.name})" + (f": {meaning}" if meaning else "")


def _first(errors: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    """Return type and message of the exception to report, preferring one with a message.

    If several ranks fail, most of them fail because one did.
    """
    first = next((error for error in errors if error.get("message")), errors[0])
    return str(first.get("type", "exception")), str(first.get("message") or "").strip()


def _failed(errors: Sequence[Mapping[str, Any]]) -> str:
    kind, message = _first(errors)
    if message.startswith(_WORKER):
        return f"The program ended because a worker died, often because memory ran out: {message}"
    if kind.endswith("OutOfMemoryError") or message:
        resource = "GPU memory" if kind.endswith("OutOfMemoryError") else "memory"
        return f"The program ran out of {resource}, with an uncaught {kind}: {_OUT_OF_MEMORY}. It said: {message}"
    return f"The program ended with an uncaught error: {kind}."
