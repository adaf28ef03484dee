"""Gradient accumulation under DistributedDataParallel with one gradient reduction per update.

The sums are the same, in another order. A model reduces unless its pass is certainly not the last one of an update:
after an update that a GradScaler skipped it reduces at every pass, with the same sums.
"""

from typing import Any

from ..tracebacks import step_aside
from ._modification import Modification, NotMade


def apply(change: Modification, passes: int) -> None:
    """Change every model under DistributedDataParallel once it is known; an update takes `passes` backward passes.

    An update after passes that were not reduced is reported as a problem: an epoch may end with fewer.

    Raises:
        NotMade: `passes` is less than 2.
    """
    from torch.nn.parallel import DistributedDataParallel  # type: ignore[import-not-found,unused-ignore]
    from torch.optim.optimizer import register_optimizer_step_pre_hook  # type: ignore[import-not-found,unused-ignore]

    if passes < 2:
        raise NotMade("Each update has only one backward pass, which must reduce gradients.", "no-target")
    models: dict[Any, _DelayedReduction] = {}

    def act(root: Any) -> None:
        for model in root.modules():
            if isinstance(model, DistributedDataParallel) and model not in models:
                models[model] = _DelayedReduction(change, model, passes)

    def backward(plain: Any, *args: Any, **kwargs: Any) -> Any:
        result = plain(*args, **kwargs)
        for reduction in models.values():
            reduction.passed()
        return result

    def before_update(optimizer: Any, args: Any, kwargs: Any) -> None:
        for reduction in models.values():
            reduction.before_update(optimizer)

    change.agent.on_model.append(act)
    change.undoing.append(register_optimizer_step_pre_hook(before_update).remove)
    change.replace(change.torch.autograd, "backward", backward)  # which Tensor.backward calls by this name
    change.expect("No model is wrapped in DistributedDataParallel.")


class _DelayedReduction:
    """The progress of one model's update."""

    def __init__(self, change: Modification, model: Any, passes: int) -> None:
        self._change = change
        self._passes = passes
        self._parameters = {id(parameter) for parameter in model.parameters()}
        self._passed = 0
        """Backward passes since the last update."""
        self._open = False
        """Whether a forward pass still awaits its backward pass."""
        self._reduces = self._reduced = True
        """Whether the coming pass reduces, and whether the last one did."""
        change.replace_forward(model, self._forward)

    def _forward(self, model: Any, plain: Any, *args: Any, **kwargs: Any) -> Any:
        if not self._change.torch.is_grad_enabled():
            return plain(*args, **kwargs)
        if not model.require_backward_grad_sync:
            self._change.fail("The program itself skips reductions.", "program-does")
            return plain(*args, **kwargs)
        self._open = True
        # The forward pass decides, because it prepares the reduction.
        model.require_backward_grad_sync = self._reduces = self._passed >= self._passes - 1
        try:
            return plain(*args, **kwargs)
        except BaseException as error:
            step_aside(error)
            raise
        finally:
            model.require_backward_grad_sync = True

    def passed(self) -> None:
        """Count a backward pass if this model waited for one."""
        if self._open:
            self._open = False
            self._passed += 1
            self._reduced = self._reduces

    def before_update(self, optimizer: Any) -> None:
        if not any(
            id(parameter) in self._parameters for group in optimizer.param_groups for parameter in group["params"]
        ):
            return
        if self._passed and not self._reduced:
            self._change.fail(
                f"The program updated its weights after {self._passed} of the expected {self._passes} backward passes."
            )
        self._passed = 0
