"""How a run is named."""

import click
import pytest

from advisor.cli.run import _misplaced, run
from profiler import launch
from profiler.errors import ProfilerError


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("train.py --lr 1", "train.py"),
        ("-m package.train", "package.train"),
        ("-mpackage.train", "package.train"),
        ("python -mpackage.train --lr 1", "package.train"),
        ("python tiny.py", "tiny.py"),
        ("/usr/bin/python3.11 -u tiny.py", "tiny.py"),
        ("python -m package.train", "package.train"),
        ("python", "python"),
        ("torchrun train.py", "torchrun"),
    ],
)
def test_run_is_named_after_script_even_behind_interpreter(words, name):
    assert launch.run_name(tuple(words.split())) == name


def test_quoted_command_suggests_removing_quotes():
    quoted = "python tiny.py"
    with pytest.raises(ProfilerError) as raised:
        launch.program((quoted,))
    assert raised.value.remedy.endswith(f": profile-train {quoted}")


@pytest.mark.parametrize(("source", "found"), [("print(1)", ["--out"]), ("add_argument('--out')", [])])
def test_option_after_script_that_lacks_it_is_reported(tmp_path, source, found):
    script = tmp_path / "train.py"
    script.write_text(source)

    with click.Context(run):
        assert _misplaced((str(script), "--lr", "1", "--out", "x")) == found
        assert _misplaced(("no-such-command", "--out", "x")) == []
