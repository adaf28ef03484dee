"""Count what docs/contributing/style.md asks for. `make style` prints the counts; none of them is a bar."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SHEET = ROOT / "docs/contributing/style.md"
PRODUCT = ("profiler", "advisor")
FRAGMENT = re.compile(
    r"(A|An|All|And|As|At|Beside|By|Each|Either|For|From|How|In|Into|Its|No|None|Not|Of|On|One|Or|Over|That|The|Their|"
    r"These|They|This|Those|To|Under|What|Whatever|When|Where|Whether|Which|Who|Whose|Why|With|Without)\b"
)
"""How a function's docstring without a verb begins."""
ARCHAIC = re.compile(r"\b(told|mend|heed|lest|whoever|anew|patient|beside)\b", re.IGNORECASE)
"""Words that docs/contributing/style.md rules out, in text and in code."""
PROSE = re.compile(r"[A-Za-z][\w']*[,;:]? [a-z][\w']*[,;:]? [a-z]")
"""Three words in a row, as in a sentence but not in a path, code, or command."""
SHORT = 4
"""Most words of a docstring that seldom says more than the name."""

Function = (ast.FunctionDef, ast.AsyncFunctionDef)


def trees(*folders: str) -> Iterator[tuple[Path, ast.Module]]:
    """Parse each Python file below `folders`."""
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield path, ast.parse(path.read_text(encoding="utf-8"), str(path))


def docstrings(tree: ast.Module, kinds: tuple[type, ...]) -> Iterator[str]:
    """Yield the docstrings of nodes of these kinds, except those that users read as parts of a page.

    They are a rule's `when` and `then`, the halves of one sentence, and the definitions of metrics.
    """
    for node in ast.walk(tree):
        if isinstance(node, kinds) and getattr(node, "name", "") not in ("when", "then") and not is_metric(node):
            text = ast.get_docstring(node)
            if text:
                yield text


def is_metric(node: ast.AST) -> bool:
    """Return whether a function is decorated with `@metric(...)`."""
    return any(
        isinstance(one, ast.Call) and isinstance(one.func, ast.Name) and one.func.id == "metric"
        for one in getattr(node, "decorator_list", ())
    )


def prose_asserts(tree: ast.Module) -> int:
    """Count the asserts whose condition quotes a sentence, except as a key. Messages of failures are not counted."""
    return sum(_quotes(node.test) for node in ast.walk(tree) if isinstance(node, ast.Assert))


def _quotes(condition: ast.expr) -> bool:
    keys = {id(node.slice) for node in ast.walk(condition) if isinstance(node, ast.Subscript)}
    return any(
        isinstance(part, ast.Constant)
        and isinstance(part.value, str)
        and id(part) not in keys
        and PROSE.search(part.value)
        for part in ast.walk(condition)
    )


def user_facing(code: Iterable[Path]) -> list[Path]:
    """Return the files in which a word may reach a user, without the style sheet, which lists the words."""
    templates = [path for path in (ROOT / "templates").rglob("*") if path.is_file() and path.suffix != ".cache"]
    documents = [path for path in (ROOT / "docs").rglob("*.md") if path != SHEET]
    return [*code, *ROOT.glob("*.md"), *documents, *templates]


def room(path: Path) -> str:
    """Return the folder that a file counts for: at most two levels deep."""
    return "/".join(path.relative_to(ROOT).parent.parts[:2]) or "."


def main() -> None:
    """Print every count, the largest first where it has parts."""
    product = list(trees(*PRODUCT))
    tests = list(trees("tests"))
    functions = [text for _, tree in product for text in docstrings(tree, Function)]
    every = [text for _, tree in product for text in docstrings(tree, (ast.ClassDef, ast.Module, *Function))]
    fragments = sum(bool(FRAGMENT.match(text)) for text in functions)
    short = sum(len(text.split()) <= SHORT for text in every)
    texts = [path.read_text(encoding="utf-8") for path in user_facing(path for path, _ in product)]
    classes = Counter(node.name for _, tree in product for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    repeated = [f"{name} x{count}" for name, count in classes.most_common() if count > 1]
    prose = Counter({path.relative_to(ROOT).as_posix(): prose_asserts(tree) for path, tree in tests})
    lines = Counter[str]()
    for path, _ in product + tests:
        lines[room(path)] += path.read_text(encoding="utf-8").count("\n")

    print(f"docstrings of functions that begin without a verb: {fragments} of {len(functions)}")
    print(f"docstrings of {SHORT} words or fewer: {short} of {len(every)}")
    print(f"archaic words in product and documents: {sum(len(ARCHAIC.findall(text)) for text in texts)}")
    print(f"classes defined more than once: {len(repeated)}: {', '.join(repeated)}")
    print(f"asserts that quote prose: {prose.total()} in {sum(count > 0 for count in prose.values())} files")
    for name, count in prose.most_common(10):
        print(f"  {count:6} {name}")
    print(f"lines of Python: {lines.total()}")
    for name, count in lines.most_common():
        print(f"  {count:6} {name}")


if __name__ == "__main__":
    main()
