"""Programs with other tools, plain and under profile-train."""

import pytest


@pytest.fixture
def run_both(start_plain, start_profiled):
    """Return a function that runs a script plainly and, in parallel, under profile-train with `options`."""

    def run(*words, options=("--no-report", "--no-windows"), **how):
        plain, profiled = start_plain(*words, **how), start_profiled(*words, options=options, **how)
        return plain.finish(), profiled.finish()

    return run
