"""pytest's fixture `assert_training_performance`: a training program that must not become slower than it was.

    def test_training_is_as_fast_as_it_was(assert_training_performance):
        assert_training_performance(["train.py", "--steps", "200"], "tests/baselines/train")

The baseline is a run folder; `pytest --store-training-baselines` records it anew, on the machine that is to judge.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from advisor.compare.comparison import Comparison
    from advisor.metrics.base import Metrics

ATTEMPTS = 2
"""Runs that must all be slower for a test to fail: two runs of one program differ, too."""

# `-c` puts the current folder first on sys.path, which may hold a program's own profiler.py: ours takes its place.
_COMMAND = "import sys; sys.path[0] = sys.argv.pop(1); from advisor.cli import main; raise SystemExit(main())"


def pytest_addoption(parser: pytest.Parser) -> None:
    """The option that stores."""
    parser.getgroup("profile-train").addoption(
        "--store-training-baselines",
        action="store_true",
        help="Record the baselines of assert_training_performance anew instead of comparing with them.",
    )


@pytest.fixture
def assert_training_performance(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Comparison | None]:
    """Call it with a command and a baseline: fails if the program has become slower than the baseline."""

    def check(
        command: Sequence[str | Path], baseline: str | Path, *, slower: float = 0.05, timeout: float = 600.0
    ) -> Comparison | None:
        """`command` is a script with its arguments, or a launcher; `baseline` a run folder; `slower` the share from
        which it matters; `timeout` seconds of one run. A machine that is not the baseline's skips the test."""
        # Imported only now: every pytest loads this module.
        from advisor.compare.change import Verdict

        __tracebackhide__ = True
        baseline = Path(baseline)
        if request.config.getoption("--store-training-baselines"):
            _record(command, baseline, timeout)
            return None
        if not baseline.is_dir():
            pytest.fail(f"There is no baseline {baseline}. Store it: pytest --store-training-baselines", pytrace=False)
        for attempt in range(ATTEMPTS):
            folder = tmp_path / f"profile-train-{attempt}"
            _record(command, folder, timeout)
            found, told = _compared(baseline, folder, slower)
            if found.verdict is not Verdict.WORSE:
                break
        if found.verdict in (Verdict.WORSE, Verdict.TOO_FEW, Verdict.NOT_MEASURED):
            pytest.fail(told, pytrace=False)
        return found

    return check


def _record(command: Sequence[str | Path], folder: Path, timeout: float) -> None:
    """Raises what pytest.fail does if the program does not end well."""
    import advisor

    words = [str(word) for word in command]
    if words[0].endswith(".py") or words[0] == "-m":  # with the interpreter of the tests, whatever is activated
        words.insert(0, sys.executable)
    home = str(Path(advisor.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", _COMMAND, home, "run", "--no-report", "--out", str(folder), *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=timeout,
        check=False,
    )
    if done.returncode:
        pytest.fail(f"{words} ended with status {done.returncode}:\n{done.stdout[-4000:]}", pytrace=False)


def _compared(baseline: Path, folder: Path, slower: float) -> tuple[Comparison, str]:
    """The comparison, and it in words; skips where the machines differ."""
    from advisor.compare.comparison import compare
    from advisor.render.compare_view import sections
    from advisor.render.section_text import written

    found = compare(_metrics(baseline), _metrics(folder), (str(baseline), str(folder)), slower)
    if found.hardware:
        names = ", ".join(dict.fromkeys(f"{one.group}: {one.name}" for one in found.hardware))
        pytest.skip(f"The baseline is of another machine ({names}). Store one of this: --store-training-baselines")
    return found, written(sections(found))


def _metrics(folder: Path) -> Metrics:
    from advisor.load import load
    from advisor.metrics.base import Metrics
    from profiler.errors import ProfilerError

    try:
        return Metrics(load(folder))
    except ProfilerError as error:
        pytest.fail(f"{error} Or store it anew: pytest --store-training-baselines", pytrace=False)
