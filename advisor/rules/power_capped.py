"""A power limit below the GPU's rated power lowers its clock.

An administrator or a tool set it, to save energy or because of the power supply. Compute-bound kernels slow down with
the clock; memory-bound kernels hardly do. Reaching the limit on the data sheet is normal.

Wrong when: the limit is deliberate. A lower limit saves relatively more energy than it costs time.

Source: NVIDIA: NVML API Reference, power management limit, https://docs.nvidia.com/deploy/nvml-api/index.html
"""

from advisor.metrics import Metrics, Threshold, hardware
from advisor.models.effects import LAUNCHED, remove
from advisor.rules.base import Advice, Area, Confidence, Evidence, Rule, Severity, bash, evidence, measure
from advisor.rules.clocks_set import MAX_CLOCK, RECOVERED
from advisor.units import share

RULE = Rule(
    "Raise the lowered power limit of the GPU", Area.KERNELS, Confidence.EMPIRICAL, difficulty=2, cap=Severity.SUGGEST
)

MAX_LIMIT = Threshold(0.9, "Variants of a board differ by a few percent from the data sheet (assumption).")

CODE = """\
nvidia-smi -q -d POWER,CLOCK  # "Current" against "Default Power Limit"
sudo nvidia-smi -pl WATTS  # the default limit; ask the person who lowered it
"""


def when(m: Metrics) -> Evidence | None:
    """If the power limit is below 90 % of the GPU's rated power, and the power cap keeps its clock below 90 % of the
    maximum in half of its busy time,
    """
    return evidence(
        measure(m, hardware.power_cap, "<", MAX_LIMIT), measure(m, hardware.capped_clock_ratio, "<", MAX_CLOCK)
    )


def then(m: Metrics, found: Evidence) -> Advice:
    """then raise the limit to the GPU's default, unless it is deliberate."""
    clock_ratio = m[hardware.capped_clock_ratio]
    return Advice(
        then=f"Raise the power limit to the default, unless it is deliberate: it is {share(m[hardware.power_cap])} of "
        f"the GPU's rated power, and the clock runs at {share(clock_ratio)} of its maximum.",
        changes=(bash(CODE),),
        basis="Forward, backward and optimizer regain 0, 40 or 90 % of the lost clock speed.",
        effect=remove(*LAUNCHED, shares=RECOVERED, portion=max(0.0, 1 - clock_ratio)),
        memory=0,
        risk="None for the program; power supply and cooling must be designed for the default limit.",
    )
