"""Gradients are reduced in fp32, and the backward pass does not hide the communication.

Gradients are noisy averages, so 16 of their 32 bits are enough for the transfer. DistributedDataParallel has a hook
that rounds each bucket to bf16, reduces it and converts it back. That halves the bytes and the transfer time. Weights,
optimizer state and local gradients stay fp32.

Wrong when: ranks wait for a slow rank, not for the link (such waiting is subtracted); the loss is so sensitive that
bf16 sums over very many ranks change it; or each update reduces gradients more than once (see ddp-no-sync, which avoids
those reductions).

Source: PyTorch, DDP communication hooks, https://docs.pytorch.org/docs/stable/ddp_comm_hooks.html
Source: Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms, 2009, https://doi.org/10.1016/j.jpdc.2008.09.002
"""

from advisor.metrics import Metrics, Threshold, communication, gpu, settings, step
from advisor.models.effects import PARTLY
from advisor.models.gpus import AMPERE
from advisor.models.sharding import BUCKET
from advisor.rules._phases import remove_exposed
from advisor.rules.base import Advice, Area, Confidence, Evidence, Intervention, Rule, Safety, evidence, measure, python
from advisor.units import seconds, share, size

RULE = Rule("Reduce gradients in bf16", Area.DISTRIBUTED, Confidence.ROOFLINE)

MIN_SHARE = Threshold(
    0.08, "Share of the step: half of a smaller share is hard to tell from the variation between steps (assumption)."
)

# Bytes sent in bf16 over bytes sent in fp32.
HALF = 0.5

# Above this number of buckets, the latency of each one matters; fewer and larger ones are better (assumption).
MANY_BUCKETS = 8

HOOK = """\
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

model.register_comm_hook(state=None, hook=default_hooks.bf16_compress_hook)  # once, before training
"""

UNUSED = (
    " If some step leaves parameters without a gradient, keep find_unused_parameters on: without it, the next "
    "step raises an error."
)


def when(m: Metrics) -> Evidence | None:
    """If gradients are reduced in fp32, and the exposed part of the reduction, without waiting for slower ranks, takes
    at least 8 % of the step,
    """
    if m[settings.world_size] < 2 or not m[settings.flags].ddp or m[settings.flags].fsdp or m.get(settings.on_cpu):
        return None
    if (m[gpu.device].capability or (0, 0)) < AMPERE:
        return None
    ddp, step_time = m[communication.ddp], m[step.step_time_mean]
    # torch supports the hook only with NCCL.
    if ddp.comm_hook is not None or "float32" not in ddp.dtypes or ddp.backend not in (None, "nccl"):
        return None
    exposure = measure(m, communication.exposed_transfer, ">=", m[MIN_SHARE] * step_time)
    return evidence(
        exposure,
        measure(m, settings.world_size, ">=", 2),
        note=f"{share(exposure.value / step_time)} of the step; {size(ddp.gradient_bytes)} of gradients",
    )


def then(m: Metrics, found: Evidence) -> Advice:
    """then reduce gradients in bf16."""
    ddp = m[communication.ddp]
    arguments = _settings(m)
    codes = [HOOK]
    if arguments:
        argument_text = ", ".join(f"{name}={value}" for name, value in arguments.items())
        codes.append(f"model = DistributedDataParallel(model, device_ids=[local_rank], {argument_text})\n")
    saved_seconds = m[communication.exposed_transfer] - _left(m)
    return Advice(
        then="Register DDP's bf16 hook: gradients then take half the bytes on the network."
        + (" In the same call, change " + ", ".join(arguments) + " too." if arguments else ""),
        changes=tuple(python(code, ddp.place) for code in codes),
        basis="Collectives take half as long. The backward pass hides as much of them as now, except for the last "
        f"bucket, which is always exposed. This saves {seconds(saved_seconds)} of "
        f"{seconds(m[communication.exposed_transfer])}; the cautious cases save 50 or 80 % of that.",
        effect=remove_exposed("communication", saved_seconds, PARTLY, within=("backward",)),
        memory=-ddp.gradient_bytes if "gradient_as_bucket_view" in arguments else 0,
        intervention=Intervention(
            name="ddp_hook", settings={"dtype": "bfloat16", "arguments": arguments}, safety=Safety.NUMERICS
        ),
        risk="Low to medium: gradients are summed in bf16, with 8 bits of precision. Compare the loss with a run "
        "without the hook." + (UNUSED if "find_unused_parameters" in arguments else ""),
    )


def _left(m: Metrics) -> float:
    """Return the exposed seconds that remain with half of the bytes.

    This is half of the collectives' time less what the backward pass hides, and at least the last bucket.
    """
    ddp = m[communication.ddp]
    collective_seconds = max(
        m[communication.exposed_transfer], m[communication.comm_total] - m[communication.straggler_wait]
    )
    hidden_seconds = max(0.0, m[communication.comm_total] - m[communication.exposed_comm_seconds])
    last_bucket_seconds = min(1.0, (ddp.bucket_cap or BUCKET) / max(1, ddp.gradient_bytes)) * collective_seconds
    return min(
        m[communication.exposed_transfer],
        max(
            HALF * collective_seconds - hidden_seconds,
            HALF * last_bucket_seconds if ddp.buckets == 1 else last_bucket_seconds,
        ),
    )


def _settings(m: Metrics) -> dict[str, object]:
    """Return better values for the DistributedDataParallel arguments that cost time or memory here."""
    ddp = m[communication.ddp]
    arguments: dict[str, object] = {}
    if not ddp.gradient_as_bucket_view:
        arguments["gradient_as_bucket_view"] = True
    if ddp.find_unused_parameters:
        arguments["find_unused_parameters"] = False
    if (ddp.buckets or 0) > MANY_BUCKETS and (ddp.bucket_cap or BUCKET) <= BUCKET:
        arguments["bucket_cap_mb"] = 50
    return arguments
