"""pytest's fixture `assert_training_performance`: a training program that must not become slower than it was.

    def test_training_is_as_fast_as_it_was(assert_training_performance):
        assert_training_performance(["train.py", "--steps", "200"], "tests/baselines/train")

The baseline is a run folder; `pytest --store-training-baselines` records it anew, on the machine that is to judge.

Every pytest where profile-train is installed loads this module, so it stands by a name of its own and imports nothing
of ours: a project may have an `advisor` or a `profiler` itself, which its tests mean.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

ATTEMPTS = 2
"""Runs that must all be slower for a test to fail: two runs of one program differ, too."""

PATIENCE = 120.0
"""Seconds for a comparison."""

# `-c` puts the current folder first on sys.path, which may hold packages by our names: ours takes its place.
_COMMAND = "import sys; sys.path[0] = sys.argv.pop(1); from advisor.cli import main; raise SystemExit(main())"

Check = Callable[..., "dict[str, Any] | None"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """The option that stores."""
    parser.getgroup("profile-train").addoption(
        "--store-training-baselines",
        action="store_true",
        help="Record the baselines of assert_training_performance anew instead of comparing with them.",
    )


@pytest.fixture
def assert_training_performance(request: pytest.FixtureRequest, tmp_path: Path) -> Check:
    """Call it with a command and a baseline: fails if the program has become slower than the baseline."""

    def check(
        command: Sequence[str | Path], baseline: str | Path, *, slower: float = 0.05, timeout: float = 600.0
    ) -> dict[str, Any] | None:
        """`command` is a script with its arguments, or a launcher; `baseline` a run folder; `slower` the share from
        which it matters; `timeout` seconds of one run. A machine that is not the baseline's skips the test. Gives back
        the comparison, as `profile-train compare --format json` has it."""
        __tracebackhide__ = True
        if request.config.getoption("--store-training-baselines"):
            _record(command, Path(baseline), timeout)
            return None
        if not Path(baseline).is_dir():
            pytest.fail(f"There is no baseline {baseline}. Store it: pytest --store-training-baselines", pytrace=False)
        for attempt in range(ATTEMPTS):
            folder = tmp_path / f"profile-train-{attempt}"
            _record(command, folder, timeout)
            compared = ["compare", str(baseline), str(folder), "--relevant", str(slower), "--format"]
            found: dict[str, Any] = json.loads(_ours([*compared, "json"], PATIENCE))
            if found["hardware"]:
                names = ", ".join(found["hardware"])
                pytest.skip(f"The baseline is of another machine ({names}): --store-training-baselines stores anew")
            if found["verdict"] != "worse":
                break
        if found["verdict"] in ("worse", "too few steps", "not measured"):
            pytest.fail(_ours([*compared, "text"], PATIENCE), pytrace=False)
        return found

    return check


def _record(command: Sequence[str | Path], folder: Path, timeout: float) -> None:
    words = [str(word) for word in command]
    if words[0].endswith(".py") or words[0] == "-m":  # with the interpreter of the tests, whatever is activated
        words.insert(0, sys.executable)
    _ours(["run", "--no-report", "--out", str(folder), *words], timeout)


def _ours(words: Sequence[str], timeout: float) -> str:
    """What profile-train prints; the test fails if it, or the program that it runs, does."""
    home = next(folder for folder in Path(__file__).parents if (folder / "advisor" / "cli").is_dir())
    done = subprocess.run(
        [sys.executable, "-c", _COMMAND, str(home), *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=timeout,
        check=False,
    )
    if done.returncode:
        told = f"{done.stdout[-2000:]}{done.stderr[-4000:]}"
        pytest.fail(f"profile-train {' '.join(words)} ended with status {done.returncode}:\n{told}", pytrace=False)
    return done.stdout
