"""Every process collects the same tests: pytest-xdist refuses to run where its workers differ."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def test_a_unit_test_starts_no_process():
    for begin in (lambda: subprocess.run(["true"]), lambda: os.fork(), lambda: os.posix_spawn("true", ["true"], {})):
        with pytest.raises(AssertionError, match="must not start a process"):
            begin()


@pytest.mark.process
def test_ids_do_not_depend_on_clock_hash_seed_or_process(request):
    """Collect the files of this session again, with another hash seed and another clock."""
    here = {item.nodeid for item in request.session.items}
    files = sorted({node.partition("::")[0] for node in here})
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-o", "addopts=--import-mode=importlib"]

    collected = subprocess.run(
        [*command, "-p", "other_clock", *files],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": str(ROOT / "tests" / "support")},
        capture_output=True,
        text=True,
    )

    assert collected.returncode == 0, collected.stdout
    assert here - set(collected.stdout.splitlines()) == set()
