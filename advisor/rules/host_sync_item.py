"""The GPU runs out of work because the host waits for it.

`.item()`, `.cpu()`, `print` of a tensor, `if` on a tensor and `nonzero` need a value that the GPU has not computed yet.
The host waits until the GPU's queue is empty and only then starts to fill it again. Until the next launch, the GPU is
idle.

Wrong when: the value is needed to continue (a stopping criterion, a data-dependent shape), or the wait occurs only once
in many steps. A wait costs nothing while the GPU still has queued kernels; only GPU idle time counts here.

Source: PyTorch Performance Tuning Guide: Avoid unnecessary CPU-GPU synchronization, https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html
"""

from advisor.metrics import Metrics, Threshold, gpu, program, step
from advisor.models.effects import up_to
from advisor.rules._phases import PASSES, remove_exposed
from advisor.rules.base import Advice, Area, Confidence, Evidence, Rule, evidence, measure, python
from advisor.units import share

RULE = Rule("Do not wait for the GPU in every step", Area.STALLS, Confidence.PHASE_REMOVAL)

MIN_SYNC = Threshold(
    0.03, "On a CPU, one `.item()` per step was within the noise (measured); a smaller share is not visible."
)

CURES = {
    "item": "Take .item(), .cpu() and prints of tensors out of the step: sum values on the GPU and read them "
    "about every 50 steps.",
    "copy_out": "Take .cpu(), .numpy() and prints of tensors out of the step: gather values on the GPU and copy "
    "them about every 50 steps.",
    "branch": "Take `if tensor`, `while tensor` and assert on tensors out of the step: use torch.where, or test "
    "about every 50 steps.",
    "shape": "Take nonzero, boolean masks and unique out of the step, because the host must know the size of "
    "their results: torch.where and multiplying by a mask keep the size.",
    "grad_scaler": "Let a fused optimizer (fused=True) check for overflows on the GPU, or train in bf16 without a "
    "GradScaler: the scaler's step() waits for the result.",
    "synchronize": "Take torch.cuda.synchronize() out of the step, and time with CUDA events.",
}
"""What to do, by the cause of most of the waiting."""

CODE = """\
import torch

torch.cuda.set_sync_debug_mode("warn")  # once, to find the lines; then remove it

total = torch.zeros((), device="cuda")
for step, (inputs, targets) in enumerate(loader):
    loss = training_step(inputs, targets)
    total += loss.detach()  # stays on the GPU: no loss.item() here
    if step % 50 == 49:
        print(f"{total.item() / 50:.4f}")  # one wait in fifty steps
        total.zero_()
"""


def when(m: Metrics) -> Evidence | None:
    """If the GPU is idle for at least 3 % of the step because the host waited for a value or for all GPU work,"""
    m[gpu.device]
    return evidence(measure(m, step.value_sync_fraction, ">=", MIN_SYNC))


def then(m: Metrics, found: Evidence) -> Advice:
    """then keep values on the GPU and read them only every few dozen steps."""
    waiting_share, busy_share = m[step.value_sync_fraction], m.get(gpu.gpu_busy_fraction)
    idle_share = waiting_share if busy_share is None else min(waiting_share, 1 - busy_share)
    return Advice(
        then=f"{_cure(m)} The GPU idles for {share(waiting_share)} of the step because the host waited.",
        changes=(python(CODE),),
        basis="50, 80 or 100 % of the waiting is saved, at most the time that the GPU is idle.",
        effect=remove_exposed("sync", idle_share * sum(m[step.modeled_phases].values()), up_to(1.0), PASSES),
        memory=0,
        risk="No effect on training; logged values arrive later, as means over several steps.",
    )


def _cure(m: Metrics) -> str:
    """Return what to do about the cause of most of the waiting."""
    causes: dict[str, float] = m.get(step.sync_causes) or {}
    curable_causes = {cause: idle_share for cause, idle_share in causes.items() if cause in CURES}
    main_cause = max(curable_causes, key=lambda cause: curable_causes[cause], default="item")
    if main_cause == "branch" and m.get(program.driver) == "transformers":
        return "Set logging_nan_inf_filter=False in TrainingArguments: the filter reads the loss in every step."
    return CURES[main_cause]
