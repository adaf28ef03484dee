"""How the templates' filters change text."""

import sys

import pytest
from jinja2 import DictLoader, Environment

from advisor.report.render import templates
from advisor.report.render.templates import environment


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("put `next()` here", "put <code>next()</code> here"),
        ("<b> `<i>` &", "&lt;b&gt; <code>&lt;i&gt;</code> &amp;"),
        ("one ` alone", "one ` alone"),
        ("with --fail-if-slower 5%", 'with <span class="option">--fail-if-slower</span> 5%'),
        ('"quoted"', "&#34;quoted&#34;"),
    ],
)
def test_prose_is_escaped_and_code_in_it_is_code(text, shown):
    assert environment().from_string("{{ text|prose }}").render(text=text) == shown


def test_backticks_in_command_are_kept():
    made = environment().from_string("{{ text|options }}").render(text="train.py --name `<x>`")

    assert made == 'train.py <span class="option">--name</span> `&lt;x&gt;`'


def test_templates_stay_compiled_until_they_or_the_version_change(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    place = tmp_path / "compiled"

    def render(text):
        cache = templates._Compiled(str(place))
        assert Environment(loader=DictLoader({"a": text}), bytecode_cache=cache).get_template("a").render() == text
        (kept,) = place.iterdir()
        return kept.stat().st_ino

    first = render("one")
    assert render("one") == first
    monkeypatch.setattr(templates, "__version__", "0")
    second = render("one")
    assert second != first
    assert render("two") != second


def test_templates_render_without_writable_cache_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    place = tmp_path / "absent" / "compiled"
    made = Environment(loader=DictLoader({"a": "text"}), bytecode_cache=templates._Compiled(str(place)))

    assert made.get_template("a").render() == "text"
