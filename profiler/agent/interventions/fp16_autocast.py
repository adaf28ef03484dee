"""Mixed precision in float16: autocast, and a GradScaler between backward passes and updates.

The loss is scaled before each backward pass. Gradients are unscaled as late as possible, when they are clipped or
used, so they may accumulate over several passes. An update whose gradients overflowed is skipped, and the scale
adapts; the first updates search for it. A program that changes the gradients in between, or scales by itself, is
reported as a problem.
"""

from typing import Any

from ..tracebacks import step_aside
from . import autocast
from ._modification import Modification
from ._updates import Optimizers, replace_clipping, with_gradients

# Before each of this many first updates, the gradients are checked for changes since the backward pass.
LOOKED_AT = 10


def apply(change: Modification, initial_scale: float = 65536.0) -> None:
    """Change every model before its first call, and every optimizer made from now on.

    `initial_scale` is the `init_scale` of torch.amp.GradScaler.
    """
    torch = change.torch
    scaling = _Scaling(change, initial_scale)
    change.replace(torch.amp.GradScaler, "scale", scaling.scaled)
    change.replace(torch.Tensor, "backward", scaling.backward)
    change.replace(torch.autograd, "backward", scaling.of_anything)
    replace_clipping(change, scaling.clipped)
    autocast.apply(change, "float16")
    change.expect("No torch optimizer updated any weights.", lambda: scaling.updates)


class _Scaling:
    """The scaler, and which gradients are scaled. Its methods replace the functions that they receive as `plain`."""

    def __init__(self, change: Modification, initial_scale: float) -> None:
        self._torch = change.torch
        self._fail = change.fail
        self._initial_scale = initial_scale
        self._scaler: Any = None
        self._optimizers = Optimizers(change, self._step)
        self._unscaled: set[int] = set()
        """Optimizers whose gradients have been unscaled, by `id`."""
        self._passing = self._stepping = self._stepped = False
        """Whether a backward pass is running; whether an update is running; whether the scale must follow an update."""
        self.updates = 0
        """Updates made, or skipped because of an overflow."""
        self._seen: dict[int, tuple[Any, int]] = {}
        """Gradients as the last pass left them, and their versions, by `id` of their parameters."""

    def backward(self, plain: Any, loss: Any, *args: Any, **kwargs: Any) -> Any:
        """Run the backward pass of the scaled loss."""
        if self._scaler is None:
            self._scaler = self._torch.amp.GradScaler(loss.device.type, init_scale=self._initial_scale)
        if self._stepped:
            self._scaler.update()
            self._unscaled.clear()
            self._stepped = False
        if self._unscaled:
            self._fail("The program clips gradients before the last backward pass of an update.")
        self._passing = True
        try:
            result = plain(self._scaler.scale(loss), *args, **kwargs)
        finally:
            self._passing = False
        if self.updates < LOOKED_AT:
            self._seen = {
                id(parameter): (parameter.grad, parameter.grad._version)
                for parameter in self._optimizers.with_gradients()
            }
        return result

    def of_anything(self, plain: Any, *args: Any, **kwargs: Any) -> Any:
        """Replace `torch.autograd.backward`, which `Tensor.backward` calls, too."""
        if not self._passing:
            self._fail("A backward pass does not start with `loss.backward()`.")
        return plain(*args, **kwargs)

    def scaled(self, plain: Any, scaler: Any, *args: Any, **kwargs: Any) -> Any:
        """Fail the trial if the program's own scaler scales a loss."""
        if scaler is not self._scaler and scaler.is_enabled():
            self._fail("The program scales its loss itself.", "program-does")
        return plain(scaler, *args, **kwargs)

    def clipped(self, plain: Any, parameters: Any, *args: Any, **kwargs: Any) -> Any:
        parameter_list = [parameters] if isinstance(parameters, self._torch.Tensor) else list(parameters)
        for optimizer in self._optimizers.of(parameter_list):
            self._unscale(optimizer)
        return plain(parameter_list, *args, **kwargs)

    def _step(self, plain: Any, optimizer: Any, closure: Any, *args: Any, **kwargs: Any) -> Any:
        if self._stepping:
            return plain()
        if isinstance(optimizer, self._torch.optim.LBFGS):
            self._fail("LBFGS evaluates its closure several times per update, which a GradScaler does not support.")
        loss = None
        if closure is not None:
            with self._torch.enable_grad():
                loss = closure()
        if not self._unscale(optimizer):  # nothing to update
            return loss
        self._stepping = True
        try:
            self._scaler.step(optimizer, *args, **kwargs)
        except BaseException as error:
            step_aside(error)
            raise
        finally:
            self._stepping = False
        self._stepped = True
        self.updates += 1
        return loss

    def _unscale(self, optimizer: Any) -> bool:
        """Unscale the gradients once per update; return whether there were any."""
        if id(optimizer) in self._unscaled:
            return True
        parameters = with_gradients(optimizer)
        if self._scaler is None or not parameters:
            return False
        if self.updates < LOOKED_AT:
            self._look(parameters)
        self._scaler.unscale_(optimizer)
        self._unscaled.add(id(optimizer))
        return True

    def _look(self, parameters: list[Any]) -> None:
        """Fail the trial if the gradients changed since the backward pass."""
        for parameter in parameters:
            grad, version = self._seen.get(id(parameter), (None, 0))
            if parameter.grad is not grad or grad._version != version:
                self._fail("The program changes gradients between the backward pass and the update.")
                return
