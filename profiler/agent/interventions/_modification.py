"""A modification of the running program: it can be undone, and it fails its trial if it has found no target.

Without a target, the trial would measure the unchanged program.
"""

from __future__ import annotations

import atexit
import functools
import types
from collections.abc import Callable
from typing import Any

from ..dynamo import not_for_dynamo
from ..patching import each_of
from ..session import Agent
from ..tracebacks import step_aside

# Steps after which models are known and optimizers have stepped; measured steps come later.
SETTLED = 10

_MISSING = object()


class NotMade(RuntimeError):
    """A change that was not made, or not everywhere.

    `code` says why: "no-target" (the program has nothing to change), "program-does" (the program itself controls what
    the change affects) or "unsuitable" (the program does something that the change does not allow).
    """

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.problem_code = code


class Modification:
    """The replacements that one change has made in the program."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.torch = agent.torch
        self.made = False
        """Whether the change has found its target; a replaced forward pass is one."""
        self.undoing: list[Callable[[], None]] = []
        self.undo = each_of(self.undoing)

    @property
    def is_trial(self) -> bool:
        """Return whether the process ends after some steps, and its output is thrown away."""
        return self.agent.settings["trial"]["steps"] is not None

    def put(self, owner: Any, name: str, value: Any) -> Callable[[], None]:
        """Set an attribute; return the undo function, which keeps a value that the program has set since."""
        previous_value = vars(owner).get(name, _MISSING)
        setattr(owner, name, value)

        def undo() -> None:
            if vars(owner).get(name) is not value:
                return
            if previous_value is _MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, previous_value)

        self.undoing.append(undo)
        return undo

    def replace(self, owner: Any, name: str, function: Callable[..., Any]) -> Callable[[], None]:
        """Call `function(plain, ...)` in place of `plain(...)`, an attribute of `owner`; return the undo function."""
        plain = getattr(owner, name)

        @functools.wraps(plain)
        def replaced(*args: Any, **kwargs: Any) -> Any:
            try:
                return function(plain, *args, **kwargs)
            except BaseException as error:
                step_aside(error)
                step_aside(error)  # removes the frame of `function`, too
                raise

        for own_function in (replaced, function):
            not_for_dynamo(self.torch, own_function)
        return self.put(owner, name, replaced)

    def replace_forward(self, module: Any, function: Callable[..., Any]) -> None:
        """Call `function(module, plain, ...)` in place of `plain(...)`, the module's forward pass.

        The replacement is bound like a method: a copy of the module calls its own plain forward, and a pickle only
        names it.
        """
        instance_forward = module.__dict__.get("forward")

        @functools.wraps(type(module).forward)
        def replaced(self: Any, *args: Any, **kwargs: Any) -> Any:
            plain = functools.partial(type(self).forward, self) if instance_forward is None else instance_forward
            return function(self, plain, *args, **kwargs)

        self.made = True
        self.put(module, "forward", types.MethodType(replaced, module))

    def fail(self, why: str, code: str = "unsuitable") -> None:
        """Report that the trial shows nothing about the change."""
        self.agent.problem("trial", NotMade(why, code))

    def expect(
        self,
        missing: str,
        made: Callable[[], object] | None = None,
        *,
        code: str = "no-target",
        by_the_end: bool = False,
    ) -> None:
        """Fail the trial with the message `missing` unless `made()`, else `self.made`, is true after the first steps.

        With `by_the_end` it is checked after the last step instead, and not at all if the program trains to its own
        end.
        """
        agent, last_step = self.agent, self.agent.settings["trial"]["steps"]
        if last_step is None and by_the_end:
            return  # it is unknown when the program ends
        due_step = SETTLED if last_step is None else last_step if by_the_end else min(SETTLED, last_step)
        steps = [0]

        def at_step() -> None:
            steps[0] += 1
            if steps[0] >= due_step:
                look()

        def at_exit() -> None:
            if at_step in agent.on_step and not agent.failed:  # the program's last step came before the trial's
                look()

        def look() -> None:
            agent.on_step.remove(at_step)
            try:
                if not (self.made if made is None else made()):
                    self.fail(missing, code)
            except Exception as error:
                agent.problem("trial", error)

        def opened() -> None:
            atexit.register(at_exit)  # runs before agent.finish, which closes the event writer

        agent.on_step.append(at_step)
        if by_the_end:
            agent.on_open.append(opened)
