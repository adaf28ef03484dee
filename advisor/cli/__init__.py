"""The command line.

Only light modules are imported before the program starts: every millisecond here delays it. Commands import
everything else inside their functions, so that help, completion and other commands also start faster.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from typing import TYPE_CHECKING


def _prefer_ours() -> None:
    """Move the entries of PYTHONPATH to the end of `sys.path`: the program's modules may have the names of ours."""
    pythonpath = os.environ.get("PYTHONPATH")
    if not pythonpath:
        return
    entries = {os.path.normpath(entry) for entry in pythonpath.split(os.pathsep)}
    with contextlib.suppress(OSError):  # the current folder was deleted: relative entries are useless
        entries |= {os.path.abspath(entry) for entry in entries}
    tail = [entry for entry in sys.path[1:] if os.path.normpath(entry) in entries]  # sys.path[0] is our script's folder
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # our root sorts first
    sys.path[1:] = [entry for entry in sys.path[1:] if entry not in tail] + sorted(tail, key=root.__ne__)


_prefer_ours()

import click  # noqa: E402

from profiler.errors import ProfilerError  # noqa: E402
from profiler.printable import printable, say  # noqa: E402
from profiler.version import __version__  # noqa: E402

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

COMMANDS = (
    "run",
    "attach",
    "watch",
    "report",
    "compare",
    "export",
    "merge",
    "fleet",
    "verify",
    "tune",
    "plan",
    "doctor",
    "mcp",
    "rules",
    "explain",
)

EPILOG = """
\b
Examples:
  profile-train train.py --lr 3e-4
  profile-train torchrun --nproc-per-node 8 train.py
"""


class _Commands(click.Group):
    """The commands, each in the module of its name, imported on use.

    A first word that is not a command is a program to run.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(importlib.import_module(f"advisor.cli.{cmd_name}"), cmd_name)
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in (*COMMANDS, "--help", "-h", "--version"):
            args = ["run", *args]
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return completions for a command, a program, or an option of `run`, whose name may be left out."""
        from advisor.cli import completion

        items = super().shell_complete(ctx, incomplete)
        if not incomplete.startswith("-"):
            return completion.first_words(items, incomplete)
        run = self.get_command(ctx, "run")
        assert run is not None
        return [*items, *run.shell_complete(click.Context(run, parent=ctx), incomplete)]


@click.group(
    cls=_Commands,
    help="Find what slows down PyTorch training, what to change, and what it saves.\n\nOptions come before SCRIPT, "
    "which runs unchanged: profile-train run --help.",
    epilog=EPILOG,
    subcommand_metavar="[COMMAND] [OPTIONS] SCRIPT [ARGS]...",
    options_metavar="",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, message="profile-train %(version)s", help="Show the version.")
def group() -> None:
    """Group the commands; see its `help`."""


def _meant(words: list[str]) -> str | None:
    """Return the command that the first word misspells; None if the word is a program."""
    import difflib
    import shutil

    if (
        not words
        or words[0].startswith("-")
        or words[0] in COMMANDS
        or shutil.which(words[0])
        or os.path.exists(words[0])
    ):
        return None
    return next(iter(difflib.get_close_matches(words[0], COMMANDS, n=1, cutoff=0.7)), None)


def main(argv: list[str] | None = None) -> int:
    """Run a command line and return its exit status.

    It is 0, 1 for an error of profile-train, 2 for wrong usage, or 130 if interrupted.
    """
    if os.environ.get("_PROFILE_TRAIN_COMPLETE") == "fish_source":
        from advisor.cli import completion

        completion.mend_fish()
    try:
        status = group.main(argv, prog_name="profile-train", standalone_mode=False)
    except ProfilerError as error:
        _tell(error.message, error.remedy)
        if suggestion := _meant((sys.argv[1:] if argv is None else argv)[:1]):
            click.echo(f"Did you mean: profile-train {suggestion}", err=True)
        return 1
    except OSError as error:  # from a path argument, which each command opens at a different point
        _tell(f"{error.filename or 'A file'}: {error.strerror or error}.", "Check the path and its permissions.")
        return 1
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        return 130
    return status if isinstance(status, int) else 0


def _tell(message: str, remedy: str) -> None:
    say(message)
    if remedy:
        click.echo(printable(remedy), err=True)
