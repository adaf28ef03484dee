from gpu_runs import cpu_metrics, gpu_metrics
from harness import DoesNotFire, Fires, NotMeasured

from advisor.metrics.attention import attention_is_flash, attention_share, sequence_length
from advisor.metrics.base import Missing
from advisor.metrics.gpu import gpu_busy_fraction
from advisor.models.state import State

LONG = {attention_share: 0.5, attention_is_flash: True, sequence_length: 16384, gpu_busy_fraction: 1.0}
NO = Missing("Shapes were not recorded", "Record for longer.")

CASES = [
    Fires(
        "flash attention over 16384 tokens takes half of the step",
        gpu_metrics(LONG, phases={"forward": 0.3, "backward": 0.5}),
        code=("query - key < 4096", "Q_LEN=16384"),
        then="all 16384",
        # three quarters of the tokens are left out, six tenths of that is time at best
        state=State(phases={"forward": 0.03, "backward": 0.05, "other": 0.02}),
        removed=(0.5 * 0.45 * 0.5, 0.5 * 0.45 * 0.8, 0.5 * 0.45),
    ),
    Fires("sequences just long enough", gpu_metrics({**LONG, sequence_length: 8192})),
    DoesNotFire("sequences just too short", gpu_metrics({**LONG, sequence_length: 8191})),
    Fires("attention takes just over 40 % of the step", gpu_metrics({**LONG, attention_share: 0.401})),
    DoesNotFire("attention takes just under 40 % of the step", gpu_metrics({**LONG, attention_share: 0.399})),
    DoesNotFire("no flash attention: change the kernel first", gpu_metrics({**LONG, attention_is_flash: False})),
    DoesNotFire("50 % of GPU-busy time, but the GPU is idle at times", gpu_metrics({**LONG, gpu_busy_fraction: 0.7})),
    NotMeasured("shapes were not recorded", gpu_metrics({**LONG, attention_share: NO})),
    NotMeasured("no GPU", cpu_metrics(LONG, phases={})),
]
