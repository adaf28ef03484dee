"""The GPU's clock is set below its maximum.

`nvidia-smi -lgc` locks the clock and `-ac` limits it for applications, often for a benchmark. Both settings stay until
they are reset. Compute-bound kernels slow down with the clock; memory-bound kernels hardly do.

Wrong when: the setting is deliberate, for stable timings or to save energy.

Source: NVIDIA: NVML API Reference, clocks event reasons, https://docs.nvidia.com/deploy/nvml-api/group__nvmlClocksEventReasons.html
"""

from advisor.metrics import Metrics, Threshold, hardware
from advisor.models.effects import LAUNCHED, Triple, remove
from advisor.rules.base import Advice, Area, Confidence, Evidence, Rule, Severity, bash, evidence, measure
from advisor.units import share

RULE = Rule("Reset the GPU's clocks", Area.KERNELS, Confidence.EMPIRICAL, cap=Severity.SUGGEST)

MAX_CLOCK = Threshold(0.9, "Clock divided by its maximum; above this, less than a tenth can be gained (assumption).")

# Share of the lost clock speed that is regained (assumption): none if memory is the limit, or if the power limit
# prevents the maximum clock.
RECOVERED: Triple = (0.0, 0.4, 0.9)

CODE = """\
nvidia-smi -q -d CLOCK,PERFORMANCE  # "Applications Clocks Setting : Active" says that a setting is the limit
sudo nvidia-smi -rgc && sudo nvidia-smi -rac  # resets both; ask the person who set them
"""


def when(m: Metrics) -> Evidence | None:
    """If a clock setting alone limits the GPU in half of its busy time, and keeps its clock below 90 % of the
    maximum,
    """
    return evidence(measure(m, hardware.set_clock_ratio, "<", MAX_CLOCK))


def then(m: Metrics, found: Evidence) -> Advice:
    """then reset the GPU's clocks, unless the setting is deliberate."""
    clock_ratio = m[hardware.set_clock_ratio]
    return Advice(
        then=f"Reset the GPU's clocks, unless the setting is deliberate: it keeps them at {share(clock_ratio)} of the "
        "maximum.",
        changes=(bash(CODE),),
        basis="Forward, backward and optimizer regain 0, 40 or 90 % of the lost clock speed.",
        effect=remove(*LAUNCHED, shares=RECOVERED, portion=max(0.0, 1 - clock_ratio)),
        memory=0,
        risk="None for the program; the GPU draws more power.",
    )
