"""The documents: links have targets, and what is shown works."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
from programs import PATIENCE

from advisor import cli
from advisor.settings.own_rules import load
from profiler.version import __version__

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *(ROOT / "samples").glob("*.md")])

LINK = re.compile(r"\]\(([^)\s]+)\)")


def without_code(text: str) -> str:
    return re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL)


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_link_has_a_target(subtests: pytest.Subtests) -> None:
    for page in PAGES:
        for link in LINK.findall(without_code(page.read_text(encoding="utf-8"))):
            if link.startswith(("https://", "http://", "mailto:")):
                continue
            path, _, anchor = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            with subtests.test(f"{page.relative_to(ROOT)} links {link}"):
                assert target.exists()
                assert not anchor or anchor in anchors(target)


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    listed = re.findall(r"- (?:\w+: )?([\w/]+\.md)", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    assert sorted(listed) == sorted(
        str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md") if not page.name[0].isdigit()
    )


@pytest.mark.process
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("material", reason="needs the extra `docs`")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "site" / "rules" / "index.html").exists()


def test_the_readme_stays_short() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 120
    assert max(map(len, lines)) <= 200


def test_documented_example_rule_loads(tmp_path: Path) -> None:
    (code,) = re.findall(
        r"```python\n(.*?)```", (DOCS / "configuration.md").read_text(encoding="utf-8"), flags=re.DOTALL
    )
    (tmp_path / "save_less.py").write_text(code)
    rule = next(one for one in load(tmp_path / "save_less.py").rules if one.id == "save-less")
    assert rule.id == "save-less"
    assert rule.thresholds["most"].value == 0.01


def test_citation_file_has_this_version() -> None:
    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")


def shown() -> list[str]:
    """Return our command lines in blocks of code."""
    blocks = re.findall(r"```(?:sh|console)\n(.*?)```", "\n".join(page.read_text() for page in PAGES), flags=re.DOTALL)
    return sorted(set(re.findall(r"^(?:\$ )?profile-train (\S.*)$", "\n".join(blocks), flags=re.MULTILINE)))


def test_documented_commands_parse(subtests: pytest.Subtests) -> None:
    for line in shown():
        with subtests.test(line):
            words = shlex.split(line, comments=True)
            name, arguments = (words[0], words[1:]) if words[0] in cli.COMMANDS else ("run", words)
            command = cli.group.get_command(click.Context(cli.group), name)
            assert command is not None
            command.make_parser(click.Context(command, **command.context_settings)).parse_args(arguments)
