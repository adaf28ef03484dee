"""Fail a trial if the target of its change never appears: it would measure the unchanged program."""

import atexit
from collections.abc import Callable

from ..session import Agent

# Models are known, and optimizers have stepped, by then; what is measured comes later.
SETTLED = 10


class NotMade(RuntimeError):
    """A change that was not made, or not everywhere.

    `code` says why: "no-target" (the program has nothing to change), "program-does" (it does itself what the change is
    about) or "unsuitable" (it does something that the change does not allow).
    """

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.problem_code = code


def expect(
    agent: Agent, made: Callable[[], object], missing: str, *, code: str = "no-target", by_the_end: bool = False
) -> None:
    """Fail the trial with the message `missing` unless `made()` is true after the first steps.

    With `by_the_end` it is checked after the last step instead, and not at all if the program trains to its own end.
    """
    last = agent.settings["trial"]["steps"]
    if last is None and by_the_end:
        return  # a program that trains on to its own end, wherever that is
    due = SETTLED if last is None else last if by_the_end else min(SETTLED, last)
    steps = [0]

    def at_step() -> None:
        steps[0] += 1
        if steps[0] >= due:
            look()

    def at_exit() -> None:
        if at_step in agent.on_step and not agent.failed:  # its last step came sooner than the trial's
            look()

    def look() -> None:
        agent.on_step.remove(at_step)
        try:
            if not made():
                agent.problem("trial", NotMade(missing, code))
        except Exception as error:
            agent.problem("trial", error)

    def opened() -> None:
        atexit.register(at_exit)  # before the agent's own, which closes

    agent.on_step.append(at_step)
    if by_the_end:
        agent.on_open.append(opened)
