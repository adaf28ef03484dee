from harness import DoesNotFire, Fires, NotMeasured, given

from advisor.metrics.gpu import traced_kernels
from advisor.metrics.host import CoreUse, core_use
from advisor.metrics.step import Recording, recording, steady_step_count, step_time_mean, typical_step_uncertainty

FORTY = Recording(steps=40, seconds=2.0, ordinary=39, warm_up=10)

CASES = [
    Fires(
        "29 steady steps of 40: just too few",
        given({steady_step_count: 29, typical_step_uncertainty: 0.01, recording: FORTY}),
        then="at least 41 steps (2.05 s)",
        no_gain=True,
    ),
    Fires("so few steps that their spread is unknown", given({steady_step_count: 3}), then="at least 41 steps"),
    Fires(
        "half of the steps evaluate",
        given({steady_step_count: 10, recording: Recording(steps=41, seconds=41.0, ordinary=20, warm_up=10)}),
        then="at least 81 steps (81 s)",
    ),
    Fires(
        "the mean is uncertain by 10 %: four times the steps",
        given({steady_step_count: 60, typical_step_uncertainty: 0.1, step_time_mean: 0.1}),
        then="at least 260 steps (26 s)",
    ),
    Fires(
        "many steps are advised: the number is rounded to its precision",
        given({steady_step_count: 1000, typical_step_uncertainty: 0.0811}),
        then="at least 2,700 steps",
    ),
    Fires(
        "the required steps would take hours",
        given({steady_step_count: 60, typical_step_uncertainty: 0.5, step_time_mean: 15.6}),
        then="38 steps within 10 min would not be enough",
    ),
    Fires(
        "other programs use the cores: more steps would not help",
        given({steady_step_count: 60, typical_step_uncertainty: 0.1, core_use: CoreUse(2, 1.8, 0.2)}),
        then="other programs used 1.8 of 2 cores",
    ),
    Fires("just above 5 %", given({steady_step_count: 60, typical_step_uncertainty: 0.0501})),
    DoesNotFire("just below 5 %", given({steady_step_count: 60, typical_step_uncertainty: 0.0499})),
    DoesNotFire("just enough steps", given({steady_step_count: 30, typical_step_uncertainty: 0.02})),
    Fires("a trace with too few kernels", given({traced_kernels: 29}), then="29 kernels", no_gain=True),
    DoesNotFire("a trace of a single step with just enough kernels", given({traced_kernels: 30, steady_step_count: 1})),
    NotMeasured("there is no step", given({})),
    NotMeasured("the spread is unknown", given({steady_step_count: 60})),
]
