"""The fault matrix: docs/faults.md, a row for each `@pytest.mark.fault(what, program, kept, message)` in the tests.

`python tests/faults/matrix.py` updates the page. The tests are parsed, never imported.
"""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "faults.md"

HEAD = """# What happens when something breaks

<!-- Generated from the tests' fault marks by `python tests/faults/matrix.py`. -->

Each row is a test that causes the real fault in a real program, and checks everything that the row says. *Unchanged*
means the same output and exit status as without profile-train. Except for what the rows name, nothing that was
recorded before the fault is lost.

| Fault | The program | What is kept | What is reported |
| --- | --- | --- | --- |
"""


def marks(source):
    """Return the arguments of each fault mark, in source order: those of decorators and of `pytest.param(marks=...)`. A
    test that is expected to fail has no row.

    Raises ValueError where a mark is not four plain strings.
    """
    calls = [
        node
        for test in ast.parse(source).body
        if not any("pytest.mark.xfail" in ast.unparse(mark) for mark in getattr(test, "decorator_list", ()))
        for node in ast.walk(test)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.fault"
    ]
    found = []
    for call in sorted(calls, key=lambda call: call.lineno):
        words = [ast.literal_eval(argument) for argument in call.args]
        if call.keywords or len(words) != 4 or not all(isinstance(word, str) and word for word in words):
            raise ValueError(f"line {call.lineno}: fault(what, program, kept, message) takes four strings")
        found.append(words)
    return found


def page(tests):
    """Return the page's text; `tests` is the folder that is searched for test files."""
    lines = []
    for path in sorted(tests.rglob("test_*.py")):
        source = path.read_text(encoding="utf-8")
        if "mark.fault(" not in source:
            continue
        rows = marks(source)
        if rows:
            title = ast.get_docstring(ast.parse(source)).splitlines()[0].rstrip(".")
            lines.append(f"| **{_cell(title)}** | | | |")
            lines.extend(f"| {' | '.join(map(_cell, row))} |" for row in rows)
    return HEAD + "\n".join(lines) + "\n"


def _cell(text):
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(ROOT / "tests"), encoding="utf-8")
