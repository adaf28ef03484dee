"""What the shell offers at the press of Tab. It asks each time anew, so nothing heavy is imported."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from profiler.recorder.folder import DEFAULT

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

RULES = Path(__file__).parents[1] / "rules"


def first_words(commands: list[CompletionItem], incomplete: str) -> list[CompletionItem]:
    """Commands and scripts; where none begins so, any file."""
    scripts = sorted(path.name for path in Path().glob("*.py"))
    return [*commands, *_starting(incomplete, scripts)] or [_item(incomplete, "file")]


def files(_ctx: click.Context, _param: click.Parameter | None, incomplete: str) -> list[CompletionItem]:
    """Whatever lies here: the shell looks itself."""
    return [_item(incomplete, "file")]


def runs(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The runs in the default folder, the newest first, and any other folder."""
    # The folders come first, for Bash forgets what it was told before them.
    return [_item(incomplete, "dir"), *_recorded(incomplete)]


def runs_and_files(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The same, and any file."""
    return [_item(incomplete, "file"), *_recorded(incomplete)]


def rules(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The ids of our rules, by which their files are named."""
    names = sorted(file.stem for file in RULES.glob("[!_]*.py") if file.stem != "base")
    return _starting(incomplete, (name.replace("_", "-") for name in names))


def _recorded(incomplete: str) -> list[CompletionItem]:
    stores = Path(DEFAULT).glob("*/run-*.db")
    return _starting(incomplete, sorted({str(store.parent) for store in stores}, reverse=True))


def _starting(incomplete: str, words: Iterable[str]) -> list[CompletionItem]:
    return [_item(word) for word in words if word.startswith(incomplete)]


def _item(word: str, kind: str = "plain") -> CompletionItem:
    # Imported only now: programs start that much sooner.
    from click.shell_completion import CompletionItem

    return CompletionItem(word, type=kind)
