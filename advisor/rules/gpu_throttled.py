"""A GPU lowers its clock because of heat or its power supply.

Thermal slowdown (in hardware or software) and the power brake lower the clock to protect the GPU. The cause is cooling,
airflow or power, not the program. With several GPUs, all of them wait for the slow one.

Wrong when: the clock was limited on purpose. The software power cap alone is normal on a GPU under full load, and does
not count.

Source: NVIDIA: NVML API Reference, clocks event reasons, https://docs.nvidia.com/deploy/nvml-api/index.html
"""

from advisor.metrics import Metrics, Threshold, hardware
from advisor.models.effects import LAUNCHED, remove
from advisor.rules.base import Advice, Area, Confidence, Evidence, Rule, bash, evidence, measure
from advisor.rules.clocks_set import MAX_CLOCK
from advisor.units import share

RULE = Rule("GPU is thermal throttling", Area.VALIDITY, Confidence.ROOFLINE, difficulty=2)

MIN_SHARE = Threshold(0.05, "Share of the samples in which the GPU was busy; a smaller share is a short peak.")

# Share of the lost clock speed that is regained: memory-bound kernels hardly depend on the clock (assumption).
RECOVERED = (0.5, 0.8, 1.0)


def when(m: Metrics) -> Evidence | None:
    """If heat or the power brake slowed a GPU for more than 5 % of its busy time, to a clock below 90 % of
    its maximum,
    """
    throttling = measure(m, hardware.thermal_throttle_share, ">", MIN_SHARE)
    clock_ratio = measure(m, hardware.sm_clock_ratio, "<", MAX_CLOCK)
    gpu, reasons = m[hardware.throttled_gpu], m[hardware.throttle_reasons]
    return evidence(throttling, clock_ratio, note=f"GPU {gpu.index}, {gpu.name}: {', '.join(reasons)}")


def then(m: Metrics, found: Evidence) -> Advice:
    """then check its cooling, airflow and power."""
    index = m[hardware.throttled_gpu].index
    return Advice(
        then=f"Check cooling, airflow and power of {found.note}: its clock runs at {share(m[hardware.sm_clock_ratio])} "
        "of its maximum.",
        changes=(bash(f"nvidia-smi -i {index} -q -d PERFORMANCE,TEMPERATURE,POWER,CLOCK  # during training\n"),),
        basis="Forward, backward and optimizer regain 50, 80 or 100 % of the lost clock speed.",
        effect=remove(*LAUNCHED, shares=RECOVERED, portion=1 - m[hardware.sm_clock_ratio]),
        memory=0,
        risk="None for the program; the machine must be inspected. All other predictions are valid only after this "
        "repair.",
        fault=True,
    )
