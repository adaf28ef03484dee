from harness import Blind, Fires, Silent, given

from advisor.metrics.step import steady_step_count, typical_step_uncertainty

CASES = [
    Fires(
        "just too few steps",
        given({steady_step_count: 29, typical_step_uncertainty: 0.01}),
        code="for 40 steps",
        no_gain=True,
    ),
    Fires("so few that nothing is known of their spread", given({steady_step_count: 3}), code="for 40 steps"),
    Fires(
        "the mean is uncertain by 10 %: four times the steps",
        given({steady_step_count: 60, typical_step_uncertainty: 0.1}),
        code="for 250 steps",
        then="uncertain by 10%",
    ),
    Fires(
        "so many that the number is rounded to what is known of it",
        given({steady_step_count: 1000, typical_step_uncertainty: 0.0811}),
        code="for 2700 steps",
    ),
    Fires("just above 5 %", given({steady_step_count: 60, typical_step_uncertainty: 0.0501})),
    Silent("just below 5 %", given({steady_step_count: 60, typical_step_uncertainty: 0.0499})),
    Silent("just enough steps", given({steady_step_count: 30, typical_step_uncertainty: 0.02})),
    Blind("there is no step", given({})),
    Blind("the spread is unknown", given({steady_step_count: 60})),
]
