"""Gradients overflow or underflow in fp16.

The largest fp16 number is 65504, the smallest is 6e-8. A GradScaler multiplies the loss so that small gradients do not
become zero, and skips the update if large ones overflow. A few skipped updates at the start are normal, until it finds
the right scale. If it keeps skipping, no scale fits, and computed steps are discarded. Without a scaler, small
gradients silently become zero.

Wrong when: the program scales its loss by hand, or the training diverges in fp32 as well; then find that cause first.

Source: Micikevicius et al., Mixed Precision Training, ICLR 2018, https://arxiv.org/abs/1710.03740
Source: PyTorch: torch.amp, gradient scaling, https://docs.pytorch.org/docs/stable/amp.html
"""

from advisor.metrics import Metrics, Threshold, gpu, settings
from advisor.models.effects import remove_run, up_to
from advisor.models.gpus import AMPERE
from advisor.rules._spelling import spelling
from advisor.rules.base import Advice, Area, Confidence, Evidence, Rule, evidence, measure, python
from advisor.units import share

RULE = Rule("Stop losing gradients in fp16", Area.PRECISION, Confidence.PHASE_REMOVAL)

MAX_SKIPPED = Threshold(
    0.01, "A working scaler skips one step in 2000, when it tries to double the scale; this limit is twenty times that."
)

# Below this share, fp16 is not the format that the program trains in; an evaluation may use it.
MIN_FP16 = 0.2

SCALED = """\
scaler = torch.amp.GradScaler("cuda")
with torch.autocast("cuda", dtype=torch.float16):
    outputs = model(inputs)
loss = loss_function(outputs.float(), targets)  # the loss in fp32
scaler.scale(loss).backward()
scaler.unscale_(optimizer)  # before clipping
torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
scaler.step(optimizer)
scaler.update()
"""


def when(m: Metrics) -> Evidence | None:
    """If GradScaler skips more than 1 % of the steps after it has found its scale, or fp16 autocast runs without a
    GradScaler,
    """
    flags = m[settings.flags]
    if flags.grad_scaler or m.get(settings.scaler) is not None:
        note = f"{m[settings.scaler].skipped} of {m[settings.scaler].steps} steps were skipped"
        return evidence(measure(m, settings.skipped_step_fraction, ">", MAX_SKIPPED), note=note)
    scales_itself = flags.zero_stage is not None and not flags.fsdp  # DeepSpeed
    if not flags.autocast or flags.autocast_dtype != "float16" or scales_itself:
        return None
    return evidence(measure(m, gpu.fp16_matmul_share, ">=", MIN_FP16), note="fp16 autocast without a GradScaler")


def then(m: Metrics, found: Evidence) -> Advice:
    """then train in bf16 if the GPU supports it; otherwise scale the loss, clip gradients, and compute the loss in
    fp32.
    """
    device = m.get(gpu.device)
    has_bf16 = device is not None and device.capability is not None and device.capability >= AMPERE
    skipped_share = m.get(settings.skipped_step_fraction)
    cure = (
        "Train in bf16, which has the range of fp32, and remove the GradScaler"
        if has_bf16
        else "Scale the loss with a GradScaler, clip the gradients after unscaling them, and compute the loss in fp32"
    )
    consequence = (
        "gradients too small for fp16 become zero"
        if skipped_share is None
        else f"{share(skipped_share)} of the steps are lost"
    )
    return Advice(
        then=f"{cure}: {consequence} ({found.note}).",
        changes=spelling(m).half("bf16") if has_bf16 else (python(SCALED),),
        basis="50, 80 or 100 % of the skipped steps need not be repeated."
        if skipped_share is not None
        else "No time saving is predicted; the risk is a wrong result.",
        effect=None if skipped_share is None else remove_run(up_to(min(1.0, skipped_share))),
        memory=0,
        risk="Medium: it changes which updates happen. Compare the loss over a few hundred steps.",
        fault=True,
    )
