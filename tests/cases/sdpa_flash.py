from gpu_runs import cpu_metrics, gpu_metrics
from harness import DoesNotFire, Fires, NotMeasured

from advisor.metrics.attention import (
    materialized_attention_share,
    scores_bytes,
    scores_dropped_out,
    sequence_length,
)
from advisor.metrics.base import Missing
from advisor.metrics.gpu import gpu_busy_fraction
from advisor.metrics.settings import on_cpu
from advisor.models.state import State

WRITTEN = {materialized_attention_share: 0.4, gpu_busy_fraction: 1.0, sequence_length: 8192, scores_bytes: 2e9}
NO = Missing("Shapes were not recorded", "Record for longer.")


def on_a_cpu():
    return cpu_metrics({**WRITTEN, gpu_busy_fraction: NO, on_cpu: True}, phases={})


CASES = [
    Fires(
        "attention takes 40 % of the step",
        gpu_metrics(WRITTEN, phases={"forward": 0.3, "backward": 0.5}),
        code="scaled_dot_product_attention(query, key, value",
        then="40% of the step goes into attention over 8192 tokens",
        # half of forward and backward is divided by 1.5, 2.5 and 5
        state=State(phases={"forward": 0.03, "backward": 0.05, "other": 0.02}),
        removed=(0.4 * (1 - 1 / 1.5), 0.4 * 0.6, 0.4 * 0.8),
        memory=-2 * 10**9,
    ),
    Fires("memory use is unknown", gpu_metrics({**WRITTEN, scores_bytes: NO})),
    Fires("attention takes just over 10 % of the step", gpu_metrics({**WRITTEN, materialized_attention_share: 0.101})),
    DoesNotFire(
        "attention takes just under 10 % of the step", gpu_metrics({**WRITTEN, materialized_attention_share: 0.099})
    ),
    DoesNotFire("40 % of GPU-busy time, but the GPU is mostly idle", gpu_metrics({**WRITTEN, gpu_busy_fraction: 0.2})),
    DoesNotFire("attention is fused already", gpu_metrics()),
    Fires("on a CPU", on_a_cpu(), then="40% of the step"),
    DoesNotFire(
        "on a CPU, with dropout of the scores, which would still be written to memory",
        cpu_metrics({**WRITTEN, on_cpu: True, scores_dropped_out: True}, phases={}),
    ),
    Fires("on a GPU, with dropout of the scores", gpu_metrics({**WRITTEN, scores_dropped_out: True})),
    NotMeasured("shapes were not recorded", gpu_metrics({**WRITTEN, materialized_attention_share: NO})),
    NotMeasured(
        "shapes were not recorded, on a CPU", cpu_metrics({materialized_attention_share: NO, on_cpu: True}, phases={})
    ),
]
