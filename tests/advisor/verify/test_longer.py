"""How much longer a trial should be, computed by hand."""

from advisor.verify.longer import longer


def test_steps_that_vary_take_more_steps():
    """5 %, minus the 1 % that does not count: 60 (2.8 x .02 / .04)^2 = 118 steps, at least half more, plus warm-up."""
    advice = longer(0.05, steps=60, steps_noise=0.02, processes=3, process_noise=0.0)

    assert "--steps 133." in advice
    assert "--steps 486." in longer(0.05, steps=60, steps_noise=0.04, processes=3, process_noise=0.0)


def test_processes_that_differ_take_more_processes():
    """2 (2.80 x .05 / (.1 - .01))^2 = 4.8."""
    advice = longer(0.1, steps=60, steps_noise=0.001, processes=3, process_noise=0.05)

    assert "--repeats 5." in advice


def test_processes_that_differ_by_far_take_another_machine():
    advice = longer(0.05, steps=60, steps_noise=0.001, processes=3, process_noise=0.3)

    assert "883 runs" in advice
    assert "machine" in advice
    assert "--" not in advice


def test_advice_looks_for_no_gain_below_3_percent():
    assert "3%" in longer(0.0001, steps=60, steps_noise=0.02, processes=3, process_noise=0.0)
