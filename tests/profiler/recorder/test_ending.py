"""What is said of a program's end."""

from signal import SIGTERM

from profiler.recorder.ending import GRACE, Asked, sentence


def test_a_failure_soon_after_a_signal_is_told_with_it_and_a_late_one_is_not():
    soon, late = (sentence("failed", 1, None, asked=Asked(SIGTERM, before)) for before in (GRACE - 1.0, GRACE + 1.0))

    assert soon == (
        "The program ended with exit status 1, after signal 15 (SIGTERM): a scheduler's time limit or preemption, or "
        "a kill command."
    )
    assert late == sentence("failed", 1, None) == "The program ended with exit status 1."


def test_a_program_that_ended_well_needs_no_word():
    assert sentence("completed", 0, None, asked=Asked(SIGTERM, 1.0)) is None
