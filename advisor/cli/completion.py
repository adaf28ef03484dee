"""Shell completions. They run at each Tab, so nothing heavy is imported."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from profiler.recorder.folder import DEFAULT

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

RULES = Path(__file__).parents[1] / "rules"
METRICS = Path(__file__).parents[1] / "metrics"

GOALS = ("throughput", "memory", "cost", "latency")
"""The goals of advisor.settings.declared, which takes long to import."""


def mend_fish() -> None:
    """Fix click's script for fish, which ends each completion and its description at the first comma."""
    from click.shell_completion import FishComplete, add_completion_class

    class Fish(FishComplete):
        source_template = FishComplete.source_template.replace('split ","', 'split --max 1 ","')

    add_completion_class(Fish)


def first_words(commands: list[CompletionItem], incomplete: str) -> list[CompletionItem]:
    """Return matching commands and scripts; any file if none matches."""
    scripts = sorted(path.name for path in Path().glob("*.py"))
    return [*commands, *_starting(incomplete, scripts)] or [_item(incomplete, "file")]


def files(_ctx: click.Context, _param: click.Parameter | None, incomplete: str) -> list[CompletionItem]:
    """Return a completion that lets the shell list files itself."""
    return [_item(incomplete, "file")]


def runs(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the runs in the default folder, newest first; any folder if none matches."""
    # Never both: zsh would cut the typed word back to the common prefix of folder and run.
    return _recorded(incomplete) or [_item(incomplete, "dir")]


def runs_and_files(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the runs in the default folder, newest first; any file if none matches."""
    return _recorded(incomplete) or [_item(incomplete, "file")]


def rules(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the ids of built-in rules, from the names of their files."""
    names = sorted(file.stem for file in RULES.glob("[!_]*.py") if file.stem != "base")
    return _starting(incomplete, (name.replace("_", "-") for name in names))


def rules_and_metrics(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the ids of built-in rules, and the names of metrics that begin with what you typed.

    There are three times as many metrics as rules, so an empty word completes rules only.
    """
    if not incomplete:
        return rules(ctx, param, incomplete)
    sources = (file.read_text(encoding="utf-8") for file in METRICS.glob("*.py"))
    names = [name for source in sources for name in re.findall(r"^@metric\(.*\ndef (\w+)", source, re.MULTILINE)]
    return [*rules(ctx, param, incomplete), *_starting(incomplete, sorted(names))]


def goals(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the goals that may be declared."""
    return _starting(incomplete, GOALS)


def _recorded(incomplete: str) -> list[CompletionItem]:
    stores = Path(DEFAULT).glob("*/run-*.db")
    return _starting(incomplete, sorted({str(store.parent) for store in stores}, reverse=True))


def _starting(incomplete: str, words: Iterable[str]) -> list[CompletionItem]:
    return [_item(word) for word in words if word.startswith(incomplete)]


def _item(word: str, kind: str = "plain") -> CompletionItem:
    from click.shell_completion import CompletionItem

    return CompletionItem(word, type=kind)
