from harness import DoesNotFire, Fires, NotMeasured, given

from advisor.metrics.hardware import sm_clock_ratio, thermal_throttle_share, throttle_reasons, throttled_gpu
from advisor.models.state import State
from profiler.schema import Gpu

HOT = {
    throttled_gpu: Gpu(index=3, uuid="GPU-3", name="A100", memory_total=80 << 30),
    throttle_reasons: ("hardware thermal slowdown",),
    thermal_throttle_share: 0.4,
    sm_clock_ratio: 0.62,
}

CASES = [
    Fires(
        "a hot GPU at 62 % of its clock",
        given(HOT),
        code="nvidia-smi -i 3",
        note="GPU 3, A100: hardware thermal slowdown",
        state=State(phases={"data_wait": 0.01, "forward": 0.03, "backward": 0.06}),
        removed=(0.171, 0.2736, 0.342),
        fault=True,
    ),
    Fires("just above 5 % of the time", given({**HOT, thermal_throttle_share: 0.051})),
    DoesNotFire("just below 5 % of the time", given({**HOT, thermal_throttle_share: 0.049})),
    Fires("the clock just below 90 % of its maximum", given({**HOT, sm_clock_ratio: 0.899})),
    DoesNotFire("the clock just above 90 % of its maximum", given({**HOT, sm_clock_ratio: 0.901})),
    DoesNotFire("the power cap alone is normal", given({**HOT, thermal_throttle_share: 0.0, sm_clock_ratio: 0.7})),
    NotMeasured("no GPU", given({})),
    NotMeasured("the maximum clock is unknown", given({k: v for k, v in HOT.items() if k is not sm_clock_ratio})),
]
