"""Gradients of all parameters are kept until the optimizer updates them together.

The backward pass computes gradients one after the other. A hook that updates each parameter as soon as its gradient is
complete, and frees the gradient, keeps only one gradient at a time. The update is the same.

Wrong when: something needs all gradients at once: clipping by their norm, a GradScaler, accumulation over several
backward passes, or DistributedDataParallel's reduction.

Source: PyTorch: How to save memory by fusing the optimizer step into the backward pass, https://docs.pytorch.org/tutorials/intermediate/optimizer_step_in_backward_tutorial.html
"""

from advisor.metrics import Metrics, Threshold, memory, settings, step
from advisor.models.effects import Triple, remove
from advisor.rules._memory import pressure
from advisor.rules.base import Advice, Area, Confidence, Evidence, Rule, Severity, evidence, measure, python
from advisor.units import size

RULE = Rule(
    "Update parameters in the backward pass",
    Area.MEMORY,
    Confidence.EMPIRICAL,
    difficulty=2,
    cap=Severity.SUGGEST,
    supersedes=("offload-states",),
)

MIN_SHARE = Threshold(0.15, "Below this share of the peak, gradients are not what fills the memory (assumption).")

MAX_ACTIVATIONS = Threshold(0.4, "Share of the peak from which checkpointing frees more (ckpt-every-n).")

# One update for each tensor launches more kernels than one for all, but reads gradients that are still in the cache
# (assumption).
FASTER: Triple = (-0.5, -0.1, 0.1)

CODE = """\
optimizers = {{p: {name}([p], ...) for p in model.parameters() if p.requires_grad}}  # the same arguments as now


def update(parameter):
    optimizers[parameter].step()
    optimizers[parameter].zero_grad()  # frees this gradient


for parameter in optimizers:
    parameter.register_post_accumulate_grad_hook(update)
# in the loop: only loss.backward(); a scheduler must set the learning rate of every optimizer
"""


def when(m: Metrics) -> Evidence | None:
    """If memory is under pressure on a single rank, gradients make up at least 15 % of its peak and activations less
    than 40 %, and each backward pass is followed by an update of torch's own optimizers without a GradScaler,
    """
    optimizer, flags = m[settings.optimizer], m[settings.flags]
    if not m[memory.memory_pressure] or m[settings.world_size] > 1 or m[step.micro_steps_per_step] > 1:
        return None
    if (
        flags.grad_scaler
        or optimizer.driven_by
        or not optimizer.module.startswith("torch.optim")
        or (optimizer.device or "").startswith("cpu")
    ):
        return None
    peak = m[memory.mem_peak_allocated]
    gradients = measure(m, memory.mem_grads, ">=", m[MIN_SHARE] * peak)
    if not gradients.holds or m[memory.mem_activations] >= m[MAX_ACTIVATIONS] * peak:
        return None
    return evidence(gradients, *pressure(m), note=optimizer.name)


def then(m: Metrics, found: Evidence) -> Advice:
    """then update each parameter in the backward pass, and free its gradient."""
    optimizer = m[settings.optimizer]
    return Advice(
        then=f"Update each parameter as soon as its gradient is complete, unless gradients are clipped by their norm: "
        f"that frees up to {size(m[memory.mem_grads])} of gradients.",
        changes=(python(CODE.format(name=f"torch.optim.{optimizer.name}")),),
        basis="One gradient at a time instead of all. The update takes 50 % more time, 10 % more or 10 % less.",
        effect=remove("optimizer", shares=FASTER),
        memory=-m[memory.mem_grads],
        risk="Low: the same update. Clipping by norm and checkpoints of a single optimizer need other code.",
        fault=True,
    )
