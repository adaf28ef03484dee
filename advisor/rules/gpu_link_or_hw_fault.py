"""A GPU's PCIe link is narrower or slower than the GPU and its slot support.

NVML reports the maximum that the GPU and its slot support. If the link stays below that under load, it has fallen back
to a lower width or speed: the card is badly seated, a riser or lane is bad, or a firmware setting limits it. Every
batch then takes longer to copy.

Wrong when: the link shares a switch on purpose, or a virtual machine does not report the real link. A link that is slow
only while the GPU is idle saves power and does not count.

Source: NVIDIA: NVML API Reference, PCIe link generation and width, https://docs.nvidia.com/deploy/nvml-api/index.html
"""

from advisor.metrics import Metrics, Threshold, hardware, step
from advisor.models.effects import up_to
from advisor.rules._phases import remove_exposed
from advisor.rules.base import Advice, Area, Confidence, Evidence, Rule, bash, evidence, measure
from advisor.units import share

RULE = Rule("Check the GPU's PCIe link", Area.VALIDITY, Confidence.PHASE_REMOVAL, difficulty=3)

MIN_H2D = Threshold(0.03, "Below this, the link does not slow down the step.")

WHOLE = Threshold(1.0, "Width times speed, divided by the maximum.")

FIELDS = "index,name,pcie.link.gen.current,pcie.link.gen.max,pcie.link.width.current,pcie.link.width.max"


def when(m: Metrics) -> Evidence | None:
    """If a GPU's PCIe link stays below its width or speed under load, and exposed copies take at least
    3 % of the step,
    """
    return evidence(measure(m, hardware.pcie_ratio, "<", WHOLE), measure(m, step.h2d_fraction, ">=", MIN_H2D))


def then(m: Metrics, found: Evidence) -> Advice:
    """then take the machine out of service and inspect the link."""
    link_ratio = m[hardware.pcie_ratio]
    return Advice(
        then=f"Check the GPU's PCIe link: under load it runs at {share(link_ratio)} of its maximum width times speed, "
        f"and {share(m[step.h2d_fraction])} of the step is copying. Reseat the card; check riser and firmware.",
        changes=(
            bash(f"nvidia-smi --query-gpu={FIELDS} --format=csv  # during training\n"),
            bash("sudo dmesg | grep -iE 'xid|aer|pcie'  # errors of GPU and bus\n"),
        ),
        basis="Exposed copies get faster by 50, 80 or 100 % of the missing link speed.",
        effect=remove_exposed("h2d", m[step.h2d_fraction] * m[step.step_time_mean], up_to(1 - link_ratio)),
        memory=0,
        risk="None for the program; the machine must be inspected. All other predictions are valid only after this "
        "repair.",
        fault=True,
    )
