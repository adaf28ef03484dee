"""pytest's fixture `assert_training_performance`: a training program must not become slower.

    def test_training_is_as_fast_as_it_was(assert_training_performance):
        assert_training_performance(["train.py", "--steps", "200"], "tests/baselines/train")

The baseline is a run folder. Run `pytest --store-training-baselines` to record it again, on the machine of the tests.

Every pytest run where profile-train is installed loads this module. It therefore has a unique name and imports nothing
from profile-train: a project may have its own `advisor` or `profiler`, which its tests must import.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

ATTEMPTS = 2
"""Number of runs that must all be slower for a test to fail: even two runs of one program differ."""

PATIENCE = 120.0
"""Longest time of a comparison, in seconds."""

# `-c` puts the current folder first on sys.path. It may contain packages with our names, so our folder replaces it.
_COMMAND = "import sys; sys.path[0] = sys.argv.pop(1); from advisor.cli import main; raise SystemExit(main())"

Check = Callable[..., "dict[str, Any] | None"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that stores the baselines."""
    parser.getgroup("profile-train").addoption(
        "--store-training-baselines",
        action="store_true",
        help="Record the baselines of assert_training_performance again instead of comparing with them.",
    )


@pytest.fixture
def assert_training_performance(request: pytest.FixtureRequest, tmp_path: Path) -> Check:
    """Check a training program against a baseline: call it with a command and a baseline.

    The test fails if the program has become slower than the baseline.
    """

    def check(
        command: Sequence[str | Path], baseline: str | Path, *, slower: float = 0.05, timeout: float = 600.0
    ) -> dict[str, Any] | None:
        """Compare a program with its baseline, and return what `profile-train compare --format json` prints.

        The test is skipped on any machine but the baseline's. Returns None if the baseline is stored.

        Args:
            command: A script with its arguments, or a launcher.
            baseline: A run folder.
            slower: The smallest slowdown that matters, as a share.
            timeout: The longest time of one run, in seconds.
        """
        __tracebackhide__ = True
        if request.config.getoption("--store-training-baselines"):
            _record(command, Path(baseline), timeout)
            return None
        if not Path(baseline).is_dir():
            pytest.fail(f"There is no baseline {baseline}. Store it: pytest --store-training-baselines", pytrace=False)
        for attempt in range(ATTEMPTS):
            folder = tmp_path / f"profile-train-{attempt}"
            _record(command, folder, timeout)
            words = ["compare", str(baseline), str(folder), "--min-difference", str(slower), "--format"]
            comparison: dict[str, Any] = json.loads(_ours([*words, "json"], PATIENCE))
            if comparison["hardware"]:
                names = ", ".join(comparison["hardware"])
                pytest.skip(f"The baseline is of another machine ({names}): --store-training-baselines stores it again")
            if comparison["verdict"] != "worse":
                break
        if comparison["verdict"] in ("worse", "too few steps", "not measured"):
            pytest.fail(_ours([*words, "text"], PATIENCE), pytrace=False)
        return comparison

    return check


def _record(command: Sequence[str | Path], folder: Path, timeout: float) -> None:
    words = [str(word) for word in command]
    if words[0].endswith(".py") or words[0] == "-m":  # the tests' interpreter, not the active environment's
        words.insert(0, sys.executable)
    _ours(["run", "--no-report", "--out", str(folder), *words], timeout)


def _ours(words: Sequence[str], timeout: float) -> str:
    """Return the output of profile-train; the test fails if it, or the program that it runs, fails."""
    home = next(folder for folder in Path(__file__).parents if (folder / "advisor" / "cli").is_dir())
    process = subprocess.run(
        [sys.executable, "-c", _COMMAND, str(home), *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=timeout,
        check=False,
    )
    if process.returncode:
        output = f"{process.stdout[-2000:]}{process.stderr[-4000:]}"
        pytest.fail(f"profile-train {' '.join(words)} ended with status {process.returncode}:\n{output}", pytrace=False)
    return process.stdout
