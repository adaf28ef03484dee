from harness import DoesNotFire, Fires, NotMeasured, given

from advisor.metrics.hardware import pcie_ratio
from advisor.metrics.step import h2d_fraction, step_time_mean
from advisor.models.state import State

NARROW = {pcie_ratio: 0.25, h2d_fraction: 0.2, step_time_mean: 0.1}

CASES = [
    Fires(
        "four lanes of sixteen",
        given(NARROW),
        code=("pcie.link.width.current", "xid"),
        then="25%",
        state=State(phases={"h2d": 0.02, "forward": 0.08}),
        removed=(0.075, 0.12, 0.15),
        fault=True,
    ),
    Fires("just above 3 %", given({**NARROW, h2d_fraction: 0.031})),
    DoesNotFire("just below 3 %", given({**NARROW, h2d_fraction: 0.029})),
    Fires("three quarters of the link's bandwidth", given({**NARROW, pcie_ratio: 0.75})),
    DoesNotFire("the full link bandwidth", given({**NARROW, pcie_ratio: 1.0})),
    NotMeasured("no GPU", given({h2d_fraction: 0.2, step_time_mean: 0.1})),
    NotMeasured("copies were not timed", given({pcie_ratio: 0.25})),
]
