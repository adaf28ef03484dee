"""Writing tuned.toml and reading it back, whoever wrote it."""

import pytest

from advisor.verify import tuned
from profiler.errors import ProfilerError

WHOLE = """
step_time_before = 0.1
step_time_after = 0.05

[[change]]
rule = "data-workers-zero"
name = "loader"
removed = [0.4, 0.5, 0.6]

[change.settings]
file = "train.py"
line = 61
num_workers = 3

[[change]]
rule = "cpu-threads-misset"
name = "environment"

[change.settings]
variables = { "OMP_NUM_THREADS" = "2", "CUDA_LAUNCH_BLOCKING" = "" }
"""


@pytest.fixture
def written(tmp_path):
    def write(text):
        (tmp_path / "tuned.toml").write_text(text)
        return tmp_path / "tuned.toml"

    return write


def test_changes_are_read_in_format_of_agent(written):
    loader, environment = tuned.read(written(WHOLE))

    assert loader == {"name": "loader", "settings": {"file": "train.py", "line": 61, "num_workers": 3}}
    assert environment["settings"] == {"variables": {"OMP_NUM_THREADS": "2", "CUDA_LAUNCH_BLOCKING": None}}


def test_tuning_without_kept_changes_is_empty(written):
    assert tuned.read(written("step_time_before = 0.1\nstep_time_after = 0.1\n")) == ()


@pytest.mark.parametrize(
    "text",
    [
        "[",
        "change = 3",
        "[change]\nname = 'a'",
        "[[change]]\nrule = 'a'",
        "[[change]]\nname = 3",
        "[[change]]\nname = 'loader'\nsettings = 3",
        "[[change]]\nname = 'environment'",
        "[[change]]\nname = 'environment'\n[change.settings.variables]\nLD_PRELOAD = 'evil.so'",
        "[[change]]\nname = 'environment'\n[change.settings.variables]\nOMP_NUM_THREADS = '2'\nPYTHONPATH = '.'",
        "[[change]]\nname = 'environment'\n[change.settings]\nvariables = 3",
    ],
)
def test_invalid_tuning_is_refused(written, text):
    with pytest.raises(ProfilerError, match=r"not a tuned\.toml"):
        tuned.read(written(text))
