"""What filters of the templates make of text."""

import pytest

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


def test_backticks_of_a_command_stay_what_they_are():
    made = environment().from_string("{{ text|options }}").render(text="train.py --name `<x>`")

    assert made == 'train.py <span class="option">--name</span> `&lt;x&gt;`'
