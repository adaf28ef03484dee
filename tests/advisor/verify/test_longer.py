"""How much longer a trial should be: computed by hand."""

from advisor.verify.longer import Noise, longer


def test_steps_that_vary_take_more_steps():
    """5 %, less the 1 % that is none, are found with 60 (2.8 x .02 / .04)^2 = 118; half more at least, and warm-up."""
    advice = longer(Noise(steps=0.02, process=0.0), 0.05, steps=60, processes=3)

    assert "--steps 133." in advice
    assert "--steps 486." in longer(Noise(steps=0.04, process=0.0), 0.05, steps=60, processes=3)


def test_processes_that_differ_take_more_processes():
    """2 (2.80 x .05 / (.1 - .01))^2 = 4.8."""
    advice = longer(Noise(steps=0.001, process=0.05), 0.1, steps=60, processes=3)

    assert "--repeats 5." in advice


def test_processes_that_differ_by_far_take_another_machine():
    advice = longer(Noise(steps=0.001, process=0.3), 0.05, steps=60, processes=3)

    assert "883 of each" in advice
    assert "machine" in advice
    assert "--" not in advice


def test_no_gain_is_looked_for_that_would_take_forever():
    assert "3%" in longer(Noise(steps=0.02, process=0.0), 0.0001, steps=60, processes=3)
