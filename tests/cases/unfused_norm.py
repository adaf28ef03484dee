from gpu_runs import cpu_metrics, gpu_metrics
from harness import DoesNotFire, Fires, NotMeasured

from advisor.metrics.base import Missing
from advisor.metrics.gpu import gpu_busy_fraction, membound_share
from advisor.metrics.normalization import Unfused, unfused_norm, unfused_norm_share
from advisor.models.state import State


def normalizing(part, *, trained=True, own=False, least=1e9, busy=1.0):
    found = Unfused(
        calls=65.0,
        operators=8.0,
        bytes=9e9,
        least=least,
        share=part,
        saved=0.8,
        trained=trained,
        own=own,
    )
    shown = {unfused_norm: found, unfused_norm_share: part, gpu_busy_fraction: busy, membound_share: 0.4}
    return gpu_metrics(shown)


CASES = [
    Fires(
        "an unfused normalization in every layer of a language model",
        normalizing(0.1),
        code="rms_norm(",
        then="8 kernels move 8.38 GiB per step in forward passes; a fused kernel would move 954 MiB",
        note="8 kernels for each of 65 normalizations per step",
        state=State(phases={"forward": 0.03, "backward": 0.07}, membound=0.04),
        removed=(0.08, 0.16, 0.24),
        by_hand=True,
    ),
    Fires(
        "inference with torch's own normalization, in a version that does not fuse it",
        normalizing(0.1, trained=False, own=True),
        then="Update torch to 2.9",
        state=State(phases={"forward": 0.1}, membound=0.04),
        removed=(0.056, 0.072, 0.08),
    ),
    Fires("just above the limit", normalizing(0.0301)),
    DoesNotFire("just below the limit", normalizing(0.0299)),
    DoesNotFire("5 % of GPU-busy time, but the GPU is idle half of the time", normalizing(0.05, busy=0.5)),
    DoesNotFire("too few bytes to save", normalizing(0.1, least=5e9)),
    DoesNotFire("fused already", gpu_metrics({unfused_norm: None, unfused_norm_share: 0.0})),
    NotMeasured("shapes were not recorded", gpu_metrics({unfused_norm: Missing("No shapes", "Record some.")})),
    NotMeasured("no GPU", cpu_metrics(phases={})),
]
