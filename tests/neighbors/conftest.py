"""Programs beside others' tools, plainly and under profile-train."""

import pytest


@pytest.fixture
def run_both(start_plain, start_profiled):
    """Run a script plainly and, beside it, under profile-train with `options`."""

    def run(*words, options=("--no-report", "--no-windows"), **how):
        plain, profiled = start_plain(*words, **how), start_profiled(*words, options=options, **how)
        return plain.finish(), profiled.finish()

    return run
